//! bindings x * out:w
//! params n length epsilon
//! consts CENTRED LANES GROUP
//! types V
//! fns affine unit_x keep_out
//! use nan

// One invocation per row of p.length units V (f32 or vec4<f32>, read and written by unit_x and keep_out): mean, mean square of what is left, scaled values.
@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = (group.y * groups.x + group.x) * GROUP + local;
  if (row >= p.n) { return; }
  let base = row * p.length;
  let count = f32(p.length * LANES);
  var mean = 0.0;
  if (CENTRED) {
    var sums = V(0.0);
    for (var k = 0u; k < p.length; k += 1u) { sums += unit_x(base + k); }
    mean = across_sum(sums) / count;
  }
  var squares = V(0.0);
  for (var k = 0u; k < p.length; k += 1u) {
    let d = unit_x(base + k) - mean;
    squares += d * d;
  }
  let factor = 1.0 / sqrt(across_sum(squares) / count + bitcast<f32>(p.epsilon));
  for (var k = 0u; k < p.length; k += 1u) { keep_out(base + k, affine((unit_x(base + k) - mean) * factor, k)); }
}
