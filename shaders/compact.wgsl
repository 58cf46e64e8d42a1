//! bindings * part out:w
//! params length parts chunk *
//! fns keep
//! use index

// Invocation i writes the numbers of the elements that part i keeps, after those of the parts before it.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.parts) { return; }
  var at = 0u;
  for (var k = 0u; k < i; k += 1u) { at += u32(load_part(k)); }
  let end = min((i + 1u) * p.chunk, p.length);
  for (var r = i * p.chunk; r < end; r += 1u) {
    if (keep(r)) {
      store_out(at, r);
      at += 1u;
    }
  }
}
