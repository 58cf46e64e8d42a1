// a^n of 64-bit integers (with lib/int64), wrapping. A negative n truncates 1/a^|n|: only ±1 leave anything.
fn i64_pow(a: vec2<u32>, n: vec2<u32>, negative: bool) -> vec2<u32> {
  let one = vec2<u32>(1u, 0u);
  if (negative) {
    let unit = i64_eq(i64_abs(a), one);
    return select(vec2<u32>(0u), select(one, a, (n.x & 1u) == 1u), unit);
  }
  var r = one;
  var base = a;
  for (var rest = n; (rest.x | rest.y) != 0u; rest = u64_shr(rest, 1u)) {
    if ((rest.x & 1u) == 1u) { r = i64_mul(r, base); }
    base = i64_mul(base, base);
  }
  return r;
}
