// Parts of activations that stay finite and accurate at both ends (with lib/nan and lib/float).
fn f32_sigmoid(v: f32) -> f32 {
  let e = f32_exp(-abs(v));
  return select(1.0, e, v < 0.0) / (1.0 + e);
}
fn f32_softplus(v: f32) -> f32 { return select(v, 0.0, v < 0.0) + log(1.0 + exp(-abs(v))); }
// Into [low, high]; NaN stays; where low > high the result is high.
fn f32_clip(v: f32, low: f32, high: f32) -> f32 {
  let r = select(v, low, v < low);
  return select(r, high, r > high);
}
