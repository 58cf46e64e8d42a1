//! bindings q k v * out:w
//! params m n batches groups share steps splits span *
//! consts ROWS LANES
//! fns tile
//! use nan float

// attention_online where the LANES invocations of a workgroup are one subgroup, take neighbouring rows, and load keys and
// values for each other. LANES must be the subgroup's size.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
  let at = group.y * nwg.x + group.x;
  let rows = (p.m + ROWS * LANES - 1u) / (ROWS * LANES);
  if (at >= rows * p.splits * p.batches) { return; }
  let tiles = at / p.splits;
  tile(tiles / rows, tiles % rows * ROWS * LANES + lane, LANES, at % p.splits, lane);
}
