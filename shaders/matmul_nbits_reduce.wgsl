//! bindings a w scale * out:w
//! params m n k fours words words_per_block *
//! consts ROWS GROUP SLICES
//! fns tile store4

// matmul_nbits for few rows: a workgroup has ROWS of them and GROUP neighbouring vectors of 4 columns, and its SLICES share
// the blocks along k.

var<workgroup> sums: array<vec4<f32>, GROUP * SLICES>;

// Stores the sum of all slices.
fn gather(row: u32, t: u32, local: u32, v: vec4<f32>) {
  sums[local] = v;
  workgroupBarrier();
  if (local < GROUP) {
    var sum = v;
    for (var s = 1u; s < SLICES; s++) { sum += sums[local + s * GROUP]; }
    store4(row, t, sum);
  }
  workgroupBarrier();
}

@compute @workgroup_size(GROUP * SLICES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let spans = (p.fours + GROUP - 1u) / GROUP;
  let at = group.y * groups.x + group.x;
  let row = at / spans * ROWS;
  if (row >= p.m) { return; }
  tile(row, at % spans * GROUP + local % GROUP, local);
}
