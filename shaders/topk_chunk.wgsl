//! bindings x * out:w
//! params n length chunk k *
//! consts ONE
//! fns row_base row_at key before
//! use index

// One invocation per element: its place in its chunk is the number of elements of the chunk that come before it.
// Writes the chunk's elements in order, or, where the row is one chunk (ONE), the first k.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.n) { return; }
  let row = i / p.length;
  let own = i % p.length;
  let base = row_base(row);
  let begin = own - own % p.chunk;
  let end = min(begin + p.chunk, p.length);
  let mine = key(load_x(base + row_at(own)));
  var place = 0u;
  for (var r = begin; r < own; r += 1u) { place += select(1u, 0u, before(mine, key(load_x(base + row_at(r))))); }
  for (var r = own + 1u; r < end; r += 1u) { place += select(0u, 1u, before(key(load_x(base + row_at(r))), mine)); }
  if (!ONE) { store_out(row * p.length + begin + place, own); } else if (place < p.k) { store_out(row * p.k + place, own); }
}
