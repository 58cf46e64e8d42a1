// Gates i, o, f, c. The cell's state follows the hidden one in `state`.
fn cell(d: u32, u: u32, at: u32, x: vec4<f32>, r: vec4<f32>, before: f32) -> f32 {
  let c = state[p.all_units + at];
  let g = x + r;
  let w = peephole(d, u);
  let i = act_f(d, g.x + w.x * c);
  let f = forget(d, g.z + w.z * c, i);
  let next = f * c + i * act_g(d, g.w);
  state[p.all_units + at] = next;
  return act_f(d, g.y + w.y * next) * act_h(d, next);
}
