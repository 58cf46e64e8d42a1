// Division of 64-bit integers (with lib/int64): truncating as in C; a division by zero gives 0, quotient and remainder.
// (quotient, remainder) of unsigned numbers.
fn u64_divmod(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  var q = vec2<u32>(0u);
  var r = vec2<u32>(0u);
  if ((a.y | b.y) == 0u) {
    if (b.x != 0u) {
      q.x = a.x / b.x;
      r.x = a.x % b.x;
    }
  } else if ((b.x | b.y) != 0u) {
    let zeros = u64_leading_zeros(a);
    var rest = u64_shl(a, zeros);
    for (var k = zeros; k < 64u; k++) {
      let carry = r.y >> 31u;
      r = vec2<u32>((r.x << 1u) | (rest.y >> 31u), (r.y << 1u) | (r.x >> 31u));
      rest = vec2<u32>(rest.x << 1u, (rest.y << 1u) | (rest.x >> 31u));
      let fits = (carry == 1u) | !u64_lt(r, b);
      q = vec2<u32>((q.x << 1u) | select(0u, 1u, fits), (q.y << 1u) | (q.x >> 31u));
      r = select(r, i64_sub(r, b), fits);
    }
  }
  return vec4<u32>(q, r);
}
fn u64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_divmod(a, b).xy; }
fn u64_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_divmod(a, b).zw; }
fn i64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let q = u64_div(i64_abs(a), i64_abs(b));
  return select(q, i64_neg(q), i64_is_negative(a) != i64_is_negative(b));
}
// The remainder with the dividend's sign.
fn i64_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = u64_mod(i64_abs(a), i64_abs(b));
  return select(r, i64_neg(r), i64_is_negative(a));
}
// The remainder with the divisor's sign.
fn i64_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = i64_rem(a, b);
  return select(r, i64_add(r, b), (r.x | r.y) != 0u && i64_is_negative(r) != i64_is_negative(b));
}
