// asin, acos and atan (with lib/nan and lib/float): WGSL's own may be off by 4096 ULP.
// Polynomials from Cephes (asinf.c, atanf.c).
fn asin_poly(a: f32, z: f32) -> f32 {
  return a + a * z * (1.6666752422e-1 + z * (7.4953002686e-2 + z * (4.5470025998e-2 + z * (2.4181311049e-2 + z * 4.2163199048e-2))));
}
// asin of |v|; above 0.5 the part of acos: half of it.
fn asin_part(v: f32) -> f32 {
  let a = abs(v);
  let z = select(a * a, 0.5 * (1.0 - a), a > 0.5);
  return asin_poly(select(a, sqrt(z), a > 0.5), z);
}
fn is_outside_one(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x3f800000u; }
fn f32_asin(v: f32) -> f32 {
  let r = asin_part(v);
  let magnitude = select(r, 1.5707963267948966 - 2.0 * r, abs(v) > 0.5);
  return select(copy_sign(magnitude, v), f32_nan(), is_outside_one(v));
}
fn f32_acos(v: f32) -> f32 {
  let r = asin_part(v);
  let near = 1.5707963267948966 - copy_sign(r, v);
  let far = select(2.0 * r, 3.1415926535897932 - 2.0 * r, v < 0.0);
  return select(select(near, far, abs(v) > 0.5), f32_nan(), is_outside_one(v));
}
fn f32_atan(v: f32) -> f32 {
  let w = abs(v);
  let large = w > 2.414213562373095;
  let middle = w > 0.4142135623730950;
  let far = select(-1.0 / w, 0.0, w > 1e30);
  let a = select(select(w, (w - 1.0) / (w + 1.0), middle), far, large);
  let y = select(select(0.0, 0.7853981633974483, middle), 1.5707963267948966, large);
  let z = a * a;
  let r = a + a * z * (-3.33329491539e-1 + z * (1.99777106478e-1 + z * (-1.38776856032e-1 + z * 8.05374449538e-2)));
  return copy_sign(y + r, v);
}
