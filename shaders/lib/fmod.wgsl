// Exact remainders of f32 (with lib/nan and lib/float): long division of the mantissas, 8 bits at a time.
// The sign is x's, as C's fmod.
fn f32_fmod(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  let sign = bitcast<u32>(x) & 0x80000000u;
  let ey = max(b >> 23u, 1u);
  let my = max((b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u), 1u);
  var left = max(max(a >> 23u, 1u), ey) - ey;
  var m = ((a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u)) % my;
  while (left > 0u) {
    let step = min(left, 8u);
    m = (m << step) % my;
    left -= step;
  }
  let shift = min(countLeadingZeros(m) - 8u, ey - 1u);
  let r = f32_from_bits(sign | select(((ey - shift - 1u) << 23u) + (m << shift), 0u, m == 0u));
  let undefined = (a >= 0x7f800000u) | (b > 0x7f800000u) | (b == 0u);
  return select(select(r, x, a < b), f32_nan(), undefined);
}
// The sign is y's, as numpy's mod.
fn f32_mod(x: f32, y: f32) -> f32 {
  let r = f32_fmod(x, y);
  let moved = select(r, r + y, ((r < 0.0) != (y < 0.0)) & !is_nan(r));
  return select(moved, copy_sign(0.0, y), r == 0.0);
}
