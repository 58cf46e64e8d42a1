// The error function to about 1 ULP: polynomials by N. Juffa (https://stackoverflow.com/a/35148199, BSD licence).
fn f32_erf(v: f32) -> f32 {
  let s = v * v;
  let t = min(abs(v), 6.0);
  let q = t * t;
  var far = -1.72853470e-5 * t + 3.83197126e-4;
  far = far * q + (-3.88396438e-3 * t + 2.42546219e-2);
  far = far * t - 1.06777877e-1;
  far = far * t - 6.34846687e-1;
  far = far * t - 1.28717512e-1;
  far = 1.0 - exp(far * t - t);
  var near = -5.96761703e-4 * s + 4.99119423e-3;
  near = near * s - 2.67681349e-2;
  near = near * s + 1.12819925e-1;
  near = near * s - 3.76125336e-1;
  near = near * s + 1.28379166e-1;
  return select(near * v + v, select(far, -far, v < 0.0), abs(v) > 0.927734375);
}
