// f32 values that are made at run time (with lib/nan): naga refuses infinities and NaN as constants.
fn f32_from_bits(bits: u32) -> f32 { var b = bits; return bitcast<f32>(b); }
fn f32_nan() -> f32 { return f32_from_bits(0x7fc00000u); }
fn f32_inf() -> f32 { return f32_from_bits(0x7f800000u); }
fn copy_sign(magnitude: f32, sign: f32) -> f32 {
  return f32_from_bits((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}
// 0 and NaN stay; by bits, since comparisons may take subnormal numbers for 0.
fn f32_sign(v: f32) -> f32 {
  return select(copy_sign(1.0, v), v, (bitcast<u32>(v) & 0x7fffffffu) == 0u || is_nan(v));
}
// SwiftShader's exp and log lose NaN.
fn f32_exp(v: f32) -> f32 { return select(exp(v), v, is_nan(v)); }
fn f32_log(v: f32) -> f32 {
  let b = bitcast<u32>(v);
  let subnormal = b < 0x800000u;
  let r = log(select(v, f32(b), subnormal)) - select(0.0, 103.27892990343185, subnormal);
  let defined = select(r, -f32_inf(), (b & 0x7fffffffu) == 0u);
  return select(defined, f32_nan(), (v < 0.0) | is_nan(v));
}
// log(1 + v), near 0 by the series of 2·atanh(v / (2 + v)).
fn f32_log1p(v: f32) -> f32 {
  let s = v / (2.0 + v);
  let z = s * s;
  let near = s * (2.0 + z * (0.6666666667 + z * (0.4 + z * (0.2857142857 + z * 0.2222222222))));
  return select(near, f32_log(1.0 + v), abs(v) > 0.4);
}
