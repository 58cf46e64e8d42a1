// a^n of 64-bit integers (with lib/int64), wrapping. A negative n truncates 1/a^|n|: only ±1 leave anything.
fn i64_pow(a: vec2<u32>, n: vec2<u32>, negative: bool) -> vec2<u32> {
  let one = vec2<u32>(1u, 0u);
  var r = one;
  var base = a;
  var rest = select(n, vec2<u32>(n.x & 1u, 0u), negative);
  while ((rest.x | rest.y) != 0u) {
    r = select(r, i64_mul(r, base), (rest.x & 1u) == 1u);
    base = i64_mul(base, base);
    rest = vec2<u32>((rest.x >> 1u) | (rest.y << 31u), rest.y >> 1u);
  }
  return select(r, vec2<u32>(0u), negative & !i64_eq(i64_abs(a), one));
}
