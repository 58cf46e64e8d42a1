//! bindings a w scale * out:w
//! params m n k fours words words_per_block *
//! consts ROWS VECTORS GROUP
//! fns tile

// matmul_nbits for n = 4 * p.fours columns: ROWS rows and VECTORS vectors of 4 columns in registers. The invocations of
// a workgroup have rows in common, and neighbours take neighbouring columns.

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let spans = (p.fours + VECTORS * GROUP - 1u) / (VECTORS * GROUP);
  let at = group.y * groups.x + group.x;
  let row = at / spans * ROWS;
  if (row >= p.m) { return; }
  tile(row, at % spans * VECTORS * GROUP + local, 0u);
}
