//! bindings x w * out:w
//! params images fours tile_rows tile_columns rows columns *
//! fns epilogue4
//! use index

// Aᵀ·m·A of squares m of 4 × 4 products, x being [16, square, channel], plus the biases w: 2 × 2 pixels of four channels
// per invocation.
struct Pair { a: vec4<f32>, b: vec4<f32> }

fn row_of(at: u32, next: u32) -> Pair {
  let b = fours_x(at + next);
  let c = fours_x(at + 2u * next);
  return Pair(fours_x(at) + b + c, b - c - fours_x(at + 3u * next));
}

fn store4(at: u32, v: vec4<f32>) { out[at] = epilogue4(v, at * 4u); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let own = flat_index(group, groups, local);
  var i = own;
  let four = i % p.fours; i /= p.fours;
  let column = i % p.tile_columns * 2u; i /= p.tile_columns;
  let row = i % p.tile_rows * 2u; i /= p.tile_rows;
  if (i >= p.images) { return; }
  let next = p.images * p.tile_rows * p.tile_columns * p.fours;
  let r0 = row_of(own, next);
  let r1 = row_of(own + 4u * next, next);
  let r2 = row_of(own + 8u * next, next);
  let r3 = row_of(own + 12u * next, next);
  let bias = fours_w(four);
  let to = ((i * p.rows + row) * p.columns + column) * p.fours + four;
  let below = to + p.columns * p.fours;
  let right = column + 1u < p.columns;
  store4(to, r0.a + r1.a + r2.a + bias);
  if (right) { store4(to + p.fours, r0.b + r1.b + r2.b + bias); }
  if (row + 1u < p.rows) {
    store4(below, r1.a - r2.a - r3.a + bias);
    if (right) { store4(below + p.fours, r1.b - r2.b - r3.b + bias); }
  }
}
