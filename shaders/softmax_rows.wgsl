//! bindings x out:w
//! params n length lowest
//! consts LOG MASKED GROUP
//! types V
//! use nan float

// One invocation per row of p.length units V (f32 or vec4<f32>): largest, sum of exponentials, quotients.
// A row whose largest element is not finite is NaN; exp of a NaN may be anything.
// MASKED: a row of -inf alone is 0.
@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = (group.y * groups.x + group.x) * GROUP + local;
  if (row >= p.n) { return; }
  let base = row * p.length;
  var tops = V(bitcast<f32>(p.lowest));
  for (var k = 0u; k < p.length; k += 1u) { tops = larger(tops, x[base + k]); }
  let widest = across_max(tops);
  let hidden = MASKED && bitcast<u32>(widest) == p.lowest;
  let top = select(widest, 0.0, hidden);
  var sums = V(0.0);
  for (var k = 0u; k < p.length; k += 1u) { sums += exp(x[base + k] - top); }
  let sum = across_sum(sums);
  let finite = !(is_nan(top) || is_inf(top));
  if (LOG) {
    let shift = select(f32_nan(), log(sum), finite);
    for (var k = 0u; k < p.length; k += 1u) { out[base + k] = (x[base + k] - top) - shift; }
  } else {
    let scale = select(select(f32_nan(), 1.0 / sum, finite), 0.0, hidden);
    for (var k = 0u; k < p.length; k += 1u) { out[base + k] = exp(x[base + k] - top) * scale; }
  }
}
