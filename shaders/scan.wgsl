//! bindings x * out:w
//! params n parts chunk length *
//! consts EXCLUSIVE
//! types Acc
//! fns row_base row_at place carry merge
//! use index

// Invocation (row, part) writes the running totals of its part of a row, from carry(i) on.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.n) { return; }
  let base = row_base(i / p.parts);
  let begin = (i % p.parts) * p.chunk;
  let end = min(begin + p.chunk, p.length);
  var a = carry(i);
  for (var r = begin; r < end; r += 1u) {
    let at = base + row_at(place(r));
    let next = merge(a, load_x(at));
    if (EXCLUSIVE) { store_out(at, a); } else { store_out(at, next); }
    a = next;
  }
}
