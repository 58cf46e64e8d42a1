//! bindings part * out:w
//! params m n splits *
//! fns epilogue
//! use index

// out[i] = epilogue(sum over s of part[s, i]): a product of p.m rows and p.n columns from those of p.splits parts of k.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.m * p.n) { return; }
  var v = Out();
  for (var s = 0u; s < p.splits; s++) { v += part[s * p.m * p.n + i]; }
  out[i] = epilogue(v, i);
}
