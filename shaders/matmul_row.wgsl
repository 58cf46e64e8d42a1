//! bindings a b * out:w
//! params m n k b_row k_first k_last rows columns batches *
//! consts COLUMNS_APART K_TAIL
//! fns batch_offsets load4_a columns_b store4 epilogue
//! use index

// out[z, row, column] = sum over k of a[z, row, k] * b[z, k, column]: one row and one vector of 4 columns per invocation.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let tile = flat_index(group, groups, local);
  let z = tile / (p.columns * p.rows);
  if (z >= p.batches) { return; }
  let first = tile % p.columns;
  let row = (tile / p.columns) % p.rows;
  let offsets = batch_offsets(z);
  let a_start = offsets.x + row * p.k;
  var c = vec4<Out>();
  var k = p.k_first;
  for (; k + 4u <= p.k_last; k += 4u) {
    let bt = offsets.y + k * p.b_row;
    let x = load4_a(a_start + k);
    c += x.x * columns_b(bt, first) + x.y * columns_b(bt + p.b_row, first)
      + x.z * columns_b(bt + 2u * p.b_row, first) + x.w * columns_b(bt + 3u * p.b_row, first);
  }
  if (K_TAIL) {
    for (; k < p.k_last; k++) { c += load_a(a_start + k) * columns_b(offsets.y + k * p.b_row, first); }
  }
  store4((z * p.m + row) * p.n, first, c);
}
