//! bindings a * out:w
//! params m n a_line b_line k_first k_last width batches *
//! consts SPAN
//! fns batch_offsets place_a four_a place_b four_b store4

// out[z, row, column] = sum over k of a[z, row, k] * b[z, k, column]: a workgroup computes 64 by 64 outputs, an invocation
// 4 rows of 4 columns; 16 steps of k at a time are held in workgroup memory. SPAN is what `four_b` counts as 64 columns.

var<workgroup> a_tile: array<vec4<A>, 256>;
var<workgroup> b_tile: array<vec4<Out>, 256>;

// Terms past the end of k are 0, on both sides.
fn fetch(local: u32, offsets: vec2<u32>, row: u32, k: u32, first: u32) {
  let mine = place_a(local);
  let a_k = k + mine.y * 4u;
  let inside = vec4<u32>(a_k, a_k + 1u, a_k + 2u, a_k + 3u) < vec4<u32>(p.k_last);
  a_tile[mine.x * 4u + mine.y] = select(vec4<A>(), four_a(offsets.x, row + mine.x, a_k), inside);
  let step = place_b(local);
  let b_k = k + step.x;
  b_tile[step.x * 16u + step.y] = select(vec4<Out>(), four_b(offsets.y, b_k, first + step.y), b_k < p.k_last);
}

fn add(c: ptr<function, array<vec4<Out>, 4>>, local: u32, quarter: u32) {
  let b_at = quarter * 64u + local % 16u;
  let b0 = b_tile[b_at];
  let b1 = b_tile[b_at + 16u];
  let b2 = b_tile[b_at + 32u];
  let b3 = b_tile[b_at + 48u];
  let a_at = local / 16u * 16u + quarter;
  let x = array<vec4<A>, 4>(a_tile[a_at], a_tile[a_at + 4u], a_tile[a_at + 8u], a_tile[a_at + 12u]);
  (*c)[0] += x[0].x * b0 + x[0].y * b1 + x[0].z * b2 + x[0].w * b3;
  (*c)[1] += x[1].x * b0 + x[1].y * b1 + x[1].z * b2 + x[1].w * b3;
  (*c)[2] += x[2].x * b0 + x[2].y * b1 + x[2].z * b2 + x[2].w * b3;
  (*c)[3] += x[3].x * b0 + x[3].y * b1 + x[3].z * b2 + x[3].w * b3;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let spans = (p.width + 63u) / 64u;
  let rows = (p.m + 63u) / 64u;
  let at = group.y * groups.x + group.x;
  if (at >= spans * rows * p.batches) { return; }
  let z = at / (spans * rows);
  let row = at / spans % rows * 64u;
  let first = at % spans * SPAN;
  let offsets = batch_offsets(z);
  var c = array<vec4<Out>, 4>();
  for (var k = p.k_first; k < p.k_last; k += 16u) {
    fetch(local, offsets, row, k, first);
    workgroupBarrier();
    add(&c, local, 0u);
    add(&c, local, 1u);
    add(&c, local, 2u);
    add(&c, local, 3u);
    workgroupBarrier();
  }
  for (var i = 0u; i < 4u; i++) {
    let mine = row + local / 16u * 4u + i;
    if (mine < p.m) { store4((z * p.m + mine) * p.n, first + local % 16u, 16u, c[i]); }
  }
}
