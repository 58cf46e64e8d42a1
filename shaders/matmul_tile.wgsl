//! bindings a b * out:w
//! params m n a_line b_line k_first k_last width batches *
//! consts ROWS VECTORS GROUP
//! fns batch_offsets tile

// out[z, row, column] = sum over k of a[z, row, k] * b[z, k, column]: ROWS rows and VECTORS vectors of 4 columns in
// registers. Neighbouring invocations take neighbouring columns; rows and columns past the end are computed and not stored.

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let lanes = (p.width + 4u * VECTORS - 1u) / (4u * VECTORS);
  let rows = (p.m + ROWS - 1u) / ROWS;
  let at = (group.y * groups.x + group.x) * GROUP + local;
  if (at >= lanes * rows * p.batches) { return; }
  tile(at / (lanes * rows), at / lanes % rows * ROWS, at % lanes, lanes, 0u);
}
