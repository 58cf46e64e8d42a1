//! bindings * out:w
//! params n *
//! fns element
//! use index

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i < p.n) { out[i] = element(i); }
}
