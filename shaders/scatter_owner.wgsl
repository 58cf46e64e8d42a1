//! bindings indices owner:atomic
//! params n *
//! fns slot
//! use index

// Update i notes itself, as i + 1, at the slot that it names; of several the last stays, whatever the order of execution.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.n) { return; }
  let at = slot(i);
  if (at != OUTSIDE) { atomicMax(&owner[at], i + 1u); }
}
