// Conversions between f32 and integers (with lib/int64). To integers: toward zero; what does not fit, and NaN, gives the
// smallest signed number (an f32 above all u64 gives 0), as C's conversions on x86 do.
fn i32_from_f32(v: f32) -> i32 {
  if (v >= -2147483648.0 && v < 2147483648.0) { return i32(v); }
  return bitcast<i32>(0x80000000u);
}
// |v| as a 64-bit integer where it is below 2^64.
fn u64_magnitude(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v) & 0x7fffffffu;
  let m = vec2<u32>((b & 0x7fffffu) | 0x800000u, 0u);
  let e = b >> 23u;
  if (e < 127u) { return vec2<u32>(0u); }
  if (e < 150u) { return u64_shr(m, 150u - e); }
  return u64_shl(m, e - 150u);
}
fn i64_from_f32(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v);
  if ((b & 0x7fffffffu) >= 0x5f000000u) { return vec2<u32>(0u, 0x80000000u); }
  let m = u64_magnitude(v);
  return select(m, i64_neg(m), (b >> 31u) == 1u);
}
fn u64_from_f32(v: f32) -> vec2<u32> {
  let b = bitcast<u32>(v);
  if (b < 0x5f000000u || b > 0x7f800000u) { return i64_from_f32(v); }
  if (b < 0x5f800000u) { return u64_magnitude(v); }
  return vec2<u32>(0u);
}
// Round half to even.
fn f32_from_u64(a: vec2<u32>) -> f32 {
  if ((a.x | a.y) == 0u) { return 0.0; }
  let zeros = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
  let m = u64_shl(a, zeros);
  let top = m.y >> 8u;
  let up = (m.y & 0x80u) != 0u && ((m.y & 0x7fu) | m.x | (top & 1u)) != 0u;
  return bitcast<f32>(((189u - zeros) << 23u) + top + select(0u, 1u, up));
}
fn f32_from_i64(a: vec2<u32>) -> f32 {
  let m = f32_from_u64(i64_abs(a));
  return select(m, -m, i64_is_negative(a));
}
