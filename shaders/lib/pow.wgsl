// x^y with C's special cases (with lib/nan and lib/float). WGSL's pow refuses negative bases and loses log2 near 1.
// No branches and early returns: SwiftShader needs many seconds to compile them.
// log2 of a positive finite number with a small *relative* error, also near 1: the series of atanh.
fn f32_log2(v: f32) -> f32 {
  let bits = bitcast<u32>(v);
  let subnormal = bits < 0x800000u;
  let b = select(bits, bitcast<u32>(f32(bits)), subnormal);
  let fraction = bitcast<f32>((b & 0x7fffffu) | 0x3f800000u);
  let halve = fraction > 1.4142135;
  let m = select(fraction, 0.5 * fraction, halve);
  let e = f32(b >> 23u) - select(127.0, 276.0, subnormal) + select(0.0, 1.0, halve);
  let s = (m - 1.0) / (m + 1.0);
  let z = s * s;
  return e + s * (2.8853900818 + z * (0.9617966939 + z * (0.5770780164 + z * (0.4121985831 + z * 0.3205988980))));
}
// By squaring, for whole y up to ±15: exact where the power is.
fn f32_pow_small(a: f32, y: f32) -> f32 {
  let n = u32(min(abs(y), 15.0));
  let a2 = a * a;
  let a4 = a2 * a2;
  let low = select(1.0, a, (n & 1u) == 1u) * select(1.0, a2, (n & 2u) == 2u);
  let r = low * select(1.0, a4, (n & 4u) == 4u) * select(1.0, a4 * a4, (n & 8u) == 8u);
  return select(r, 1.0 / r, y < 0.0);
}
fn f32_pow_magnitude(a: f32, y: f32, integer: bool) -> f32 {
  let p = y * f32_log2(a);
  let power = select(select(exp2(clamp(p, -150.0, 127.999999)), f32_inf(), p >= 128.0), 0.0, p < -150.0);
  let r = select(power, f32_pow_small(a, y), integer & (abs(y) <= 15.0));
  let limit = select(0.0, f32_inf(), (a > 1.0) == (y > 0.0));
  let special = select(r, limit, (a == 0.0) | is_inf(a) | is_inf(y));
  return select(special, 1.0, a == 1.0);
}
// `integer` and `odd` say what y is exactly, where y itself may have been rounded.
fn f32_pow_of(x: f32, y: f32, integer: bool, odd: bool) -> f32 {
  let r = f32_pow_magnitude(abs(x), y, integer);
  let signed = select(r, -r, odd & ((bitcast<u32>(x) >> 31u) == 1u));
  let undefined = is_nan(x) | is_nan(y) | ((x < 0.0) & !integer & !is_inf(x));
  return select(select(signed, f32_nan(), undefined), 1.0, (y == 0.0) | (x == 1.0));
}
fn f32_pow(x: f32, y: f32) -> f32 {
  let a = abs(y);
  let integer = (a >= 8388608.0) | (floor(y) == y);
  return f32_pow_of(x, y, integer, integer & (a < 16777216.0) & ((u32(min(a, 16777216.0)) & 1u) == 1u));
}
