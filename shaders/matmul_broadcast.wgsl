//! bindings a b * out:w
//! params m n a_line b_line k_first k_last width batches *
//! consts ROWS VECTORS LANES SPAN
//! fns batch_offsets tile

// matmul_tile where the LANES invocations of a workgroup are one subgroup and have rows in common: each loads some of
// them, and all read those from its registers. LANES must be the subgroup's size; SPAN is what `tile` counts as columns of
// a workgroup.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32, @builtin(subgroup_invocation_id) lane: u32) {
  let spans = (p.width + 4u * VECTORS * LANES - 1u) / (4u * VECTORS * LANES);
  let rows = (p.m + ROWS - 1u) / ROWS;
  let at = group.y * groups.x + group.x;
  if (at >= spans * rows * p.batches) { return; }
  tile(at / (spans * rows), at / spans % rows * ROWS, at % spans * SPAN + local, LANES, lane);
}
