//! bindings x out:w
//! params n own row at
//! use index

// One part of a concatenation: its rows of p.own units go to place p.at of rows of p.row units.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.n) { return; }
  let o = i / p.own;
  out[i + o * (p.row - p.own) + p.at] = x[i];
}
