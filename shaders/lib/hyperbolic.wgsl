// sinh, cosh, tanh and their inverses (with lib/nan and lib/float), finite wherever the result is.
// tanh near 0 from Cephes (tanhf.c).
const LN2 = 0.6931471805599453;

fn f32_sinh(v: f32) -> f32 {
  let a = abs(v);
  let z = v * v;
  let near = v + v * z * (1.6666666667e-1 + z * (8.3333333333e-3 + z * (1.9841269841e-4 + z * 2.7557319224e-6)));
  let e = f32_exp(a - LN2);
  return select(copy_sign(e - 0.25 / e, v), near, a < 1.0);
}
fn f32_cosh(v: f32) -> f32 {
  let e = f32_exp(abs(v) - LN2);
  return e + 0.25 / e;
}
fn f32_tanh(v: f32) -> f32 {
  let a = abs(v);
  let z = v * v;
  let near = v + v * z * (-3.33332819422e-1 + z * (1.33314422036e-1 + z * (-5.37397155531e-2 + z * (2.06390887954e-2 + z * -5.70498872745e-3))));
  let e = f32_exp(-2.0 * a);
  return select(copy_sign((1.0 - e) / (1.0 + e), v), near, a < 0.625);
}
fn f32_asinh(v: f32) -> f32 {
  let a = abs(v);
  let r = f32_log1p(a + a * a / (1.0 + sqrt(a * a + 1.0)));
  return copy_sign(select(r, f32_log(a) + LN2, a > 1e9), v);
}
fn f32_acosh(v: f32) -> f32 {
  let t = v - 1.0;
  let r = select(f32_log1p(t + sqrt(2.0 * t + t * t)), f32_log(v) + LN2, v > 1e9);
  return select(r, f32_nan(), (v < 1.0) | is_nan(v));
}
fn f32_atanh(v: f32) -> f32 {
  let a = abs(v);
  let r = select(0.5 * f32_log1p(2.0 * a / (1.0 - a)), f32_inf(), a == 1.0);
  return select(copy_sign(r, v), f32_nan(), (a > 1.0) | is_nan(v));
}
