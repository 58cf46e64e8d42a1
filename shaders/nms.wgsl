//! bindings * keys:w picked:w counts:w
//! params rows n most classes begin end *
//! fns suppresses
//! use index

var<workgroup> best: array<vec2<u32>, 64>;
var<workgroup> winner: vec2<u32>;

// One workgroup per row (batch and class): picks `begin` to `end` of the boxes that it keeps. A box whose key is 0 is
// out; of equal keys the first box is the best.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = group.y * groups.x + group.x;
  if (row >= p.rows) { return; }
  if (local == 0u && p.begin == 0u) { store_counts(row, 0); }
  for (var s = p.begin; s < p.end; s += 1u) {
    var mine = vec2<u32>(0u, 0u);
    for (var j = local; j < p.n; j += 64u) {
      let k = load_keys(row * p.n + j);
      if (k > mine.x) { mine = vec2<u32>(k, j); }
    }
    best[local] = mine;
    workgroupBarrier();
    if (local == 0u) {
      var top = best[0];
      for (var t = 1u; t < 64u; t += 1u) {
        let next = best[t];
        if (next.x > top.x || (next.x == top.x && next.y < top.y)) { top = next; }
      }
      winner = top;
      if (top.x != 0u) {
        store_picked(row * p.most + s, top.y);
        store_counts(row, i32(s + 1u));
      }
    }
    let kept = workgroupUniformLoad(&winner);
    if (kept.x == 0u) { break; }
    for (var j = local; j < p.n; j += 64u) {
      let at = row * p.n + j;
      if (load_keys(at) != 0u && (j == kept.y || suppresses(row, kept.y, j))) { store_keys(at, 0u); }
    }
  }
}
