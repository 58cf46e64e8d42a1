//! bindings * out:w
//! params n *
//! fns element
//! use index

fn lane(i: u32) -> Out {
  if (i < p.n) { return element(i); }
  return Out();
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let w = flat_index(group, groups, local);
  if (w * 4u < p.n) { out[w] = pack_out(lane(4u * w), lane(4u * w + 1u), lane(4u * w + 2u), lane(4u * w + 3u)); }
}
