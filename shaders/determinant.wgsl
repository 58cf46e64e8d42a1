//! bindings out:w work:w
//! params count size
//! use index

// One matrix of `work` per invocation: elimination with the largest pivot of each column; the product of the pivots.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let m = flat_index(group, groups, local);
  if (m >= p.count) { return; }
  let n = p.size;
  let base = m * n * n;
  var determinant = 1.0;
  for (var k = 0u; k < n; k++) {
    var pivot = k;
    for (var r = k + 1u; r < n; r++) {
      if (abs(work[base + r * n + k]) > abs(work[base + pivot * n + k])) { pivot = r; }
    }
    let top = work[base + pivot * n + k];
    determinant *= select(top, -top, pivot != k);
    if (top == 0.0) { break; }
    for (var c = k; c < n; c++) {
      let moved = work[base + pivot * n + c];
      work[base + pivot * n + c] = work[base + k * n + c];
      work[base + k * n + c] = moved;
    }
    for (var r = k + 1u; r < n; r++) {
      let factor = work[base + r * n + k] / top;
      for (var c = k + 1u; c < n; c++) { work[base + r * n + c] -= factor * work[base + k * n + c]; }
    }
  }
  out[m] = determinant;
}
