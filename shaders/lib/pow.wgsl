// x^y with C's special cases (with lib/nan and lib/float). WGSL's pow refuses negative bases and loses log2 near 1.
// log2 of a positive finite number with a small *relative* error, also near 1: the series of atanh.
fn f32_log2(v: f32) -> f32 {
  var b = bitcast<u32>(v);
  var e = -127.0;
  if (b < 0x800000u) {
    b = bitcast<u32>(f32(b));
    e = -276.0;
  }
  e += f32(b >> 23u);
  var m = bitcast<f32>((b & 0x7fffffu) | 0x3f800000u);
  if (m > 1.4142135) {
    m *= 0.5;
    e += 1.0;
  }
  let s = (m - 1.0) / (m + 1.0);
  let z = s * s;
  return e + s * (2.8853900818 + z * (0.9617966939 + z * (0.5770780164 + z * (0.4121985831 + z * 0.3205988980))));
}
fn f32_pow_small(a: f32, y: f32) -> f32 {
  var r = 1.0;
  var base = a;
  for (var n = u32(abs(y)); n > 0u; n >>= 1u) {
    if ((n & 1u) == 1u) { r *= base; }
    base *= base;
  }
  return select(r, 1.0 / r, y < 0.0);
}
fn f32_pow_magnitude(a: f32, y: f32, integer: bool) -> f32 {
  let grows = (a > 1.0) == (y > 0.0);
  if (a == 1.0) { return 1.0; }
  if (a == 0.0 || is_inf(a) || is_inf(y)) { return select(0.0, f32_inf(), grows); }
  if (integer && abs(y) <= 16.0) { return f32_pow_small(a, y); }
  let p = y * f32_log2(a);
  if (p >= 128.0) { return f32_inf(); }
  if (p < -150.0) { return 0.0; }
  return exp2(p);
}
// `integer` and `odd` say what y is exactly, where y itself may have been rounded.
fn f32_pow_of(x: f32, y: f32, integer: bool, odd: bool) -> f32 {
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (is_nan(x) || is_nan(y)) { return f32_nan(); }
  if (x < 0.0 && !integer && !is_inf(x)) { return f32_nan(); }
  let r = f32_pow_magnitude(abs(x), y, integer);
  return select(r, -r, odd && (bitcast<u32>(x) >> 31u) == 1u);
}
fn f32_pow(x: f32, y: f32) -> f32 {
  let a = abs(y);
  let integer = a >= 8388608.0 || floor(y) == y;
  return f32_pow_of(x, y, integer, integer && a < 16777216.0 && (u32(min(a, 16777216.0)) & 1u) == 1u);
}
