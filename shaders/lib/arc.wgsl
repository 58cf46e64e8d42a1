// asin, acos and atan (with lib/nan and lib/float): WGSL's own may be off by 4096 ULP. Polynomials from Cephes (asinf.c, atanf.c).
fn asin_poly(a: f32, z: f32) -> f32 {
  return a + a * z * (1.6666752422e-1 + z * (7.4953002686e-2 + z * (4.5470025998e-2 + z * (2.4181311049e-2 + z * 4.2163199048e-2))));
}
// acos of v in [0.5, 1].
fn acos_near_one(v: f32) -> f32 {
  let z = 0.5 * (1.0 - v);
  return 2.0 * asin_poly(sqrt(z), z);
}
fn f32_asin(v: f32) -> f32 {
  let a = abs(v);
  if (!(a <= 1.0)) { return f32_nan(); }
  if (a > 0.5) { return copy_sign(1.5707963267948966 - acos_near_one(a), v); }
  return asin_poly(v, v * v);
}
fn f32_acos(v: f32) -> f32 {
  if (!(abs(v) <= 1.0)) { return f32_nan(); }
  if (v > 0.5) { return acos_near_one(v); }
  if (v < -0.5) { return 3.1415926535897932 - acos_near_one(-v); }
  return 1.5707963267948966 - asin_poly(v, v * v);
}
fn f32_atan(v: f32) -> f32 {
  if (is_nan(v)) { return v; }
  var a = abs(v);
  var y = 0.0;
  if (a > 2.414213562373095) {
    y = 1.5707963267948966;
    a = select(-1.0 / a, 0.0, a > 1e30);
  } else if (a > 0.4142135623730950) {
    y = 0.7853981633974483;
    a = (a - 1.0) / (a + 1.0);
  }
  let z = a * a;
  y += a + a * z * (-3.33329491539e-1 + z * (1.99777106478e-1 + z * (-1.38776856032e-1 + z * 8.05374449538e-2)));
  return copy_sign(y, v);
}
