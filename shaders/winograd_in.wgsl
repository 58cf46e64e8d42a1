//! bindings x * out:w
//! params images fours rows columns size_0 size_1 pad_0 pad_1 *
//! fns transform
//! use index

// Bᵀ·d·B of squares d of 4 × 4 pixels that are 2 apart, four channels per invocation; out is [16, square, channel].
// transform(image, row, column, four, own) loads a square and calls store_row for each row of Bᵀ·d.
struct Row { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn store_row(at: u32, next: u32, v: Row) {
  out[at] = v.a - v.c;
  out[at + next] = v.b + v.c;
  out[at + 2u * next] = v.c - v.b;
  out[at + 3u * next] = v.b - v.d;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let own = flat_index(group, groups, local);
  var i = own;
  let four = i % p.fours; i /= p.fours;
  let column = i % p.columns; i /= p.columns;
  let row = i % p.rows; i /= p.rows;
  if (i < p.images) { transform(i, row, column, four, own); }
}
