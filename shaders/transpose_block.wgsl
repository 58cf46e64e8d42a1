//! bindings x out:w
//! params n at read write *
//! fns corner
//! use index

// One invocation transposes a 4×4 block: four vec4 from x, `read` apart, to four vec4 of out, `write` apart.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  if (i >= p.n) { return; }
  let from_to = corner(i);
  let s = from_to.x;
  let t = from_to.y;
  let a = x[s];
  let b = x[s + p.read];
  let c = x[s + 2u * p.read];
  let d = x[s + 3u * p.read];
  out[t] = vec4<u32>(a.x, b.x, c.x, d.x);
  out[t + p.write] = vec4<u32>(a.y, b.y, c.y, d.y);
  out[t + 2u * p.write] = vec4<u32>(a.z, b.z, c.z, d.z);
  out[t + 3u * p.write] = vec4<u32>(a.w, b.w, c.w, d.w);
}
