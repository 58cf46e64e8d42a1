// 64-bit integers as vec2<u32>(low, high), two's complement, wrapping.
fn i64_from_i32(v: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(v), bitcast<u32>(v >> 31u)); }
fn i64_from_u32(v: u32) -> vec2<u32> { return vec2<u32>(v, 0u); }
fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn i64_neg(a: vec2<u32>) -> vec2<u32> { return i64_add(~a, vec2<u32>(1u, 0u)); }
fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return i64_add(a, i64_neg(b)); }
fn u32_mul_wide(a: u32, b: u32) -> vec2<u32> {
  let a0 = a & 0xffffu; let a1 = a >> 16u;
  let b0 = b & 0xffffu; let b1 = b >> 16u;
  let low = a0 * b0;
  let mid = a1 * b0 + (low >> 16u);
  let mid2 = a0 * b1 + (mid & 0xffffu);
  return vec2<u32>((mid2 << 16u) | (low & 0xffffu), a1 * b1 + (mid >> 16u) + (mid2 >> 16u));
}
fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let w = u32_mul_wide(a.x, b.x);
  return vec2<u32>(w.x, w.y + a.x * b.y + a.y * b.x);
}
fn i64_eq(a: vec2<u32>, b: vec2<u32>) -> bool { return all(a == b); }
fn u64_lt(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.y < b.y) | ((a.y == b.y) & (a.x < b.x)); }
fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
  return u64_lt(vec2<u32>(a.x, a.y ^ 0x80000000u), vec2<u32>(b.x, b.y ^ 0x80000000u));
}
fn i64_is_negative(a: vec2<u32>) -> bool { return (a.y >> 31u) == 1u; }
fn i64_abs(a: vec2<u32>) -> vec2<u32> { return select(a, i64_neg(a), i64_is_negative(a)); }
fn i64_sign(a: vec2<u32>) -> vec2<u32> {
  return select(vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u), vec2<u32>(0xffffffffu), i64_is_negative(a));
}
fn i64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_lt(a, b)); }
fn i64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, i64_lt(a, b)); }
fn u64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, u64_lt(a, b)); }
fn u64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, u64_lt(a, b)); }

// Shifts by 64 and more leave nothing but sign bits; the & 31 keeps each 32-bit shift within what WGSL defines.
fn u64_shl(a: vec2<u32>, s: u32) -> vec2<u32> {
  let low = a.x << (s & 31u);
  let carry = select(a.x >> ((32u - s) & 31u), 0u, (s & 31u) == 0u);
  let near = select(vec2<u32>(low, (a.y << (s & 31u)) | carry), vec2<u32>(0u, low), s >= 32u);
  return select(near, vec2<u32>(0u), s >= 64u);
}
fn u64_shr(a: vec2<u32>, s: u32) -> vec2<u32> {
  let high = a.y >> (s & 31u);
  let carry = select(a.y << ((32u - s) & 31u), 0u, (s & 31u) == 0u);
  let near = select(vec2<u32>((a.x >> (s & 31u)) | carry, high), vec2<u32>(high, 0u), s >= 32u);
  return select(near, vec2<u32>(0u), s >= 64u);
}
fn i64_shr(a: vec2<u32>, s: u32) -> vec2<u32> {
  let sign = vec2<u32>(select(0u, 0xffffffffu, i64_is_negative(a)));
  return u64_shr(a ^ sign, s) ^ sign;
}
fn u64_leading_zeros(a: vec2<u32>) -> u32 {
  return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
}
