//! bindings * out:w
//! params n *
//! fns element4
//! use index

// Four vectors per invocation, 64 apart so that neighbours touch neighbouring addresses. Buffers are whole vectors long.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = flat_index(group, groups, 0u) * 4u + local;
  for (var k = 0u; k < 256u; k += 64u) {
    let v = first + k;
    if (v * 4u < p.n) { out[v] = element4(v); }
  }
}
