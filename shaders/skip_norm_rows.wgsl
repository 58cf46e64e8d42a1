//! bindings x skip * total:w out:w
//! params n length epsilon
//! consts CENTRED LANES GROUP
//! types V
//! fns affine summed unit_x unit_skip unit_total keep_total keep_out
//! use nan

// One invocation per row of p.length units V (f32 or vec4<f32>): total = x + skip, and from it what norm_rows does.
@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = (group.y * groups.x + group.x) * GROUP + local;
  if (row >= p.n) { return; }
  let base = row * p.length;
  let count = f32(p.length * LANES);
  var sums = V(0.0);
  var squares = V(0.0);
  for (var k = 0u; k < p.length; k += 1u) {
    let v = summed(unit_x(base + k) + unit_skip(base + k), k);
    keep_total(base + k, v);
    sums += v;
    squares += v * v;
  }
  var mean = 0.0;
  if (CENTRED) {
    mean = across_sum(sums) / count;
    squares = V(0.0);
    for (var k = 0u; k < p.length; k += 1u) {
      let d = unit_total(base + k) - mean;
      squares += d * d;
    }
  }
  let factor = 1.0 / sqrt(across_sum(squares) / count + bitcast<f32>(p.epsilon));
  for (var k = 0u; k < p.length; k += 1u) { keep_out(base + k, affine((unit_total(base + k) - mean) * factor, k)); }
}
