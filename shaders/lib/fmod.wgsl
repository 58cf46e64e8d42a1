// Exact remainders of f32 (with lib/nan and lib/float): long division of the mantissas, 8 bits at a time.
// The sign is x's, as C's fmod.
fn f32_fmod(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  let sign = bitcast<u32>(x) & 0x80000000u;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return f32_nan(); }
  if (a < b) { return x; }
  let ey = max(b >> 23u, 1u);
  let my = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
  var left = max(a >> 23u, 1u) - ey;
  var m = ((a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u)) % my;
  while (left > 0u && m != 0u) {
    let step = min(left, 8u);
    m = (m << step) % my;
    left -= step;
  }
  if (m == 0u) { return f32_from_bits(sign); }
  let shift = min(countLeadingZeros(m) - 8u, ey - 1u);
  return f32_from_bits(sign | (((ey - shift - 1u) << 23u) + (m << shift)));
}
// The sign is y's, as numpy's mod.
fn f32_mod(x: f32, y: f32) -> f32 {
  let r = f32_fmod(x, y);
  if (r == 0.0) { return copy_sign(0.0, y); }
  return select(r, r + y, (r < 0.0) != (y < 0.0) && !is_nan(r));
}
