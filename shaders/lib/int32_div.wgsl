// Division of 32-bit integers: a division by zero gives 0, quotient and remainder; INT_MIN / -1 wraps.
fn u32_div(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }
fn u32_mod(a: u32, b: u32) -> u32 { return select(a % max(b, 1u), 0u, b == 0u); }
// WGSL leaves `%` of negative numbers to a rule that not all drivers keep, so magnitudes are divided.
fn i32_div(a: i32, b: i32) -> i32 {
  let q = bitcast<i32>(u32_div(bitcast<u32>(abs(a)), bitcast<u32>(abs(b))));
  return select(q, -q, (a < 0i) != (b < 0i));
}
// The remainder with the dividend's sign.
fn i32_rem(a: i32, b: i32) -> i32 {
  let r = bitcast<i32>(u32_mod(bitcast<u32>(abs(a)), bitcast<u32>(abs(b))));
  return select(r, -r, a < 0i);
}
// The remainder with the divisor's sign.
fn i32_mod(a: i32, b: i32) -> i32 {
  let r = i32_rem(a, b);
  return select(r, r + b, r != 0i && (r < 0i) != (b < 0i));
}
