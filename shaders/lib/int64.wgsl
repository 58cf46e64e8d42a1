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
fn i64_eq(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x == b.x && a.y == b.y; }
fn u64_lt(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
  return u64_lt(vec2<u32>(a.x, a.y ^ 0x80000000u), vec2<u32>(b.x, b.y ^ 0x80000000u));
}
