//! bindings q k v * out:w
//! params m n batches groups share steps splits span *
//! consts ROWS GROUP
//! fns tile
//! use nan float

// Attention of rows over spans of keys, online: https://arxiv.org/abs/1805.02867. An invocation has ROWS rows of key head
// z and p.span keys. Rows of z are those of all p.share query heads that share key head z % p.groups.

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = (group.y * nwg.x + group.x) * GROUP + local;
  let rows = (p.m + ROWS - 1u) / ROWS;
  if (at >= rows * p.splits * p.batches) { return; }
  let tiles = at / p.splits;
  tile(tiles / rows, tiles % rows * ROWS, 1u, at % p.splits, 0u);
}
