// The quotient rounded as IEEE 754 asks (WGSL's own may be 2.5 ULP off), where it is finite and neither tiny nor huge:
// one correction by the exact remainder, from the exact product (T. J. Dekker, 1971).
fn f32_upper(v: f32) -> f32 { return bitcast<f32>(bitcast<u32>(v) & 0xfffff000u); }
fn f32_div(x: f32, d: f32) -> f32 {
  let q = x / d;
  let size = abs(vec2<f32>(q, x));
  let usual = all(size > vec2<f32>(1e-18)) && all(size < vec2<f32>(1e18));
  let product = q * d;
  let q1 = f32_upper(q);
  let d1 = f32_upper(d);
  let q2 = q - q1;
  let d2 = d - d1;
  let missing = ((q1 * d1 - product) + q1 * d2 + q2 * d1) + q2 * d2;
  return select(q, q + ((x - product) - missing) / d, usual);
}
