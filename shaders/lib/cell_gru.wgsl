// Gates z, r, h; the reset gate acts after the product.
fn cell(d: u32, u: u32, at: u32, x: vec4<f32>, r: vec4<f32>, before: f32) -> f32 {
  let z = act_f(d, x.x + r.x);
  let reset = act_f(d, x.y + r.y);
  let candidate = act_g(d, x.z + reset * (r.z + late_bias(d, u)));
  return (1.0 - z) * candidate + z * before;
}
