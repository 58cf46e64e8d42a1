// Conversions between f32 and integers (with lib/int64). To integers: toward zero; what does not fit, and NaN, gives the
// smallest signed number (an f32 above all u64 gives 0), as C's conversions on x86 do.
fn i32_from_f32(v: f32) -> i32 {
  let fits = (v >= -2147483648.0) & (v < 2147483648.0);
  return select(bitcast<i32>(0x80000000u), i32(v), fits);
}
// |v| as a 64-bit integer where it is below 2^64.
fn u64_magnitude(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v) & 0x7fffffffu;
  let m = (b & 0x7fffffu) | 0x800000u;
  let e = b >> 23u;
  let whole = u64_shl(vec2<u32>(m, 0u), e - 150u);
  return select(whole, vec2<u32>(select(m >> ((150u - e) & 31u), 0u, e < 127u), 0u), e < 150u);
}
fn i64_from_f32(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v);
  let m = u64_magnitude(v);
  let signed = select(m, i64_neg(m), (b >> 31u) == 1u);
  return select(signed, vec2<u32>(0u, 0x80000000u), (b & 0x7fffffffu) >= 0x5f000000u);
}
fn u64_from_f32(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v);
  let large = select(vec2<u32>(0u), u64_magnitude(v), b < 0x5f800000u);
  return select(large, i64_from_f32(v), (b < 0x5f000000u) | (b > 0x7f800000u));
}
// Round half to even.
fn f32_from_u64(a: vec2<u32>) -> f32 {
  let zeros = u64_leading_zeros(a);
  let m = u64_shl(a, zeros);
  let top = m.y >> 8u;
  let up = ((m.y & 0x80u) != 0u) & (((m.y & 0x7fu) | m.x | (top & 1u)) != 0u);
  let bits = ((189u - zeros) << 23u) + top + select(0u, 1u, up);
  return bitcast<f32>(select(bits, 0u, zeros == 64u));
}
fn f32_from_i64(a: vec2<u32>) -> f32 {
  let m = f32_from_u64(i64_abs(a));
  return select(m, -m, i64_is_negative(a));
}
// SwiftShader's own conversion of large u32 does not round to nearest.
fn f32_from_u32(a: u32) -> f32 { return f32_from_u64(vec2<u32>(a, 0u)); }
