// Floats of 4 and 8 bits, by bits. `mantissa` is the number of stored mantissa bits. Source: onnx's docs, "Float stored in
// 8 bits" and "Float stored in 4 bits"; the OCP Microscaling Formats specification 1.0.
fn f8_value(b: u32, mantissa: u32, bias: u32) -> f32 {
  let a = b & 0x7fu;
  let normal = (a << (23u - mantissa)) + ((127u - bias) << 23u);
  let subnormal = bitcast<u32>(f32(a) * bitcast<f32>((128u - bias - mantissa) << 23u));
  return bitcast<f32>(((b & 0x80u) << 24u) | select(normal, subnormal, a < (1u << mantissa)));
}
fn f8_or_nan(b: u32, v: f32, nan: bool) -> f32 { return bitcast<f32>(select(bitcast<u32>(v), 0x7fc00000u | ((b & 0x80u) << 24u), nan)); }
fn f32_from_float8e4m3fn(b: u32) -> f32 { return f8_or_nan(b, f8_value(b, 3u, 7u), (b & 0x7fu) == 0x7fu); }
fn f32_from_float8e4m3fnuz(b: u32) -> f32 { return f8_or_nan(0u, f8_value(b, 3u, 8u), b == 0x80u); }
fn f32_from_float8e5m2fnuz(b: u32) -> f32 { return f8_or_nan(0u, f8_value(b, 2u, 16u), b == 0x80u); }
fn f32_from_float8e5m2(b: u32) -> f32 {
  let infinity = 0x7f800000u | ((b & 0x80u) << 24u);
  let v = bitcast<f32>(select(bitcast<u32>(f8_value(b, 2u, 15u)), infinity, (b & 0x7fu) == 0x7cu));
  return f8_or_nan(b, v, (b & 0x7fu) > 0x7cu);
}
fn f32_from_float4e2m1(b: u32) -> f32 { return f8_value(((b & 8u) << 4u) | (b & 7u), 1u, 1u); }
fn f32_from_float8e8m0(b: u32) -> f32 {
  return bitcast<f32>(select(select(b << 23u, 0x00400000u, b == 0u), 0x7fc00000u, b == 255u));
}

// |v| without its sign, round half to even; what is too large gives a code beyond the type's, NaN the largest ones.
fn f8_code(v: f32, mantissa: u32, bias: u32) -> u32 {
  let a = bitcast<u32>(v) & 0x7fffffffu;
  let cut = 23u - mantissa;
  if (a >= ((128u - bias) << 23u)) {
    return (a + ((1u << (cut - 1u)) - 1u) + ((a >> cut) & 1u) - ((127u - bias) << 23u)) >> cut;
  }
  let shift = cut + 128u - bias - (a >> 23u);
  if (shift > 24u) { return 0u; }
  let m = (a & 0x7fffffu) | 0x800000u;
  let q = m >> shift;
  let rest = m & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  return q + select(0u, 1u, rest > half || (rest == half && (q & 1u) == 1u));
}
fn f8_sign(v: f32) -> u32 { return (bitcast<u32>(v) >> 24u) & 0x80u; }
fn f8_is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
// Zero and NaN have no sign.
fn f8_unsigned_zero(v: f32, code: u32) -> u32 { return select(select(f8_sign(v) | code, 0u, code == 0u), 0x80u, code > 0x7fu); }
fn float8e4m3fn_bits(v: f32) -> u32 { return f8_sign(v) | min(f8_code(v, 3u, 7u), 0x7fu); }
fn float8e4m3fnuz_bits(v: f32) -> u32 { return f8_unsigned_zero(v, f8_code(v, 3u, 8u)); }
fn float8e5m2fnuz_bits(v: f32) -> u32 { return f8_unsigned_zero(v, f8_code(v, 2u, 16u)); }
fn float8e5m2_bits(v: f32) -> u32 { return f8_sign(v) | select(min(f8_code(v, 2u, 15u), 0x7cu), 0x7eu, f8_is_nan(v)); }
// The type has neither infinity nor NaN: it saturates, and NaN gives a zero of the other sign, as in ml_dtypes.
fn float4e2m1_bits(v: f32) -> u32 {
  let sign = f8_sign(v) >> 4u;
  return select(sign | min(f8_code(v, 1u, 1u), 7u), sign ^ 8u, f8_is_nan(v));
}
// Of a power of two or NaN: see f8_power.
fn float8e8m0_bits(v: f32) -> u32 { return (bitcast<u32>(v) >> 23u) & 255u; }

// v within ±top; NaN stays.
fn f8_saturate(v: f32, top: f32) -> f32 {
  let b = bitcast<u32>(v);
  let beyond = (b & 0x7fffffffu) > bitcast<u32>(top) && !f8_is_nan(v);
  return bitcast<f32>(select(b, bitcast<u32>(top) | (b & 0x80000000u), beyond));
}
// |v| as a power of two in 2^-127 … 2^127: up, down, or (mode 2) to the nearest, ties up. What lies beyond saturates or is NaN.
fn f8_power(v: f32, mode: u32, saturate: bool) -> f32 {
  let a = bitcast<u32>(v) & 0x7fffffffu;
  let small = a < 0x800000u;
  let low = select(a & 0x7f800000u, 0x400000u, small);
  let high = select(low + 0x800000u, 0x800000u, small);
  let middle = select(low + 0x400000u, 0x600000u, small);
  let up = (mode == 0u && a > low) || (mode == 2u && a >= middle);
  var r = select(low, high, up);
  if (a > 0x7f000000u) { r = select(0x7fc00000u, 0x7f000000u, saturate && a <= 0x7f800000u); }
  if (a < 0x400000u) { r = select(0x7fc00000u, 0x400000u, saturate); }
  return bitcast<f32>(r);
}
