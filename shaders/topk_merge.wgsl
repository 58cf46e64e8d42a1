//! bindings x * sorted out:w
//! params n length chunk k *
//! fns row_base row_at key before
//! use index

// One invocation per element of an ordered chunk: its place in the row is its place in the chunk plus, for each other
// chunk, the number of elements there that come before it. Equal elements of earlier chunks come before.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.n) { return; }
  let row = i / p.length;
  let first = row * p.length;
  let own = i - first;
  var place = own % p.chunk;
  let home = own - place;
  let base = row_base(row);
  let element = load_sorted(i);
  let mine = key(load_x(base + row_at(element)));
  for (var begin = 0u; begin < p.length && place < p.k; begin += p.chunk) {
    if (begin == home) { continue; }
    var low = begin;
    var high = min(begin + p.chunk, p.length);
    while (low < high) {
      let middle = (low + high) / 2u;
      let other = key(load_x(base + row_at(load_sorted(first + middle))));
      if (before(other, mine) || (begin < home && !before(mine, other))) { low = middle + 1u; } else { high = middle; }
    }
    place += low - begin;
  }
  if (place < p.k) { store_out(row * p.k + place, element); }
}
