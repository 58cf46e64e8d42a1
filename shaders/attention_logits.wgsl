//! bindings q k * out:w
//! params m n head row rows columns batches groups steps q_n q_h q_s q_d q_at k_n k_h k_t k_d k_at lowest *
//! fns q4 k4 epilogue
//! use index

// out[z, row, t] = epilogue(sum over d of q[z, row, d] * k[z, t, d]): 8 rows and 4 keys in registers. Rows of z are those
// of all query heads that share key head z % p.groups. A row of out is padded with -inf to p.row units of four.

fn q_start(n: u32, g: u32, row: u32) -> u32 {
  let r = min(row, p.m - 1u);
  return p.q_at + n * p.q_n + (g * (p.m / p.steps) + r / p.steps) * p.q_h + r % p.steps * p.q_s;
}

fn against(q: vec4<f32>, k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(dot(q, k0), dot(q, k1), dot(q, k2), dot(q, k3));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let tile = flat_index(group, nwg, local);
  let z = tile / (p.columns * p.rows);
  if (z >= p.batches) { return; }
  let t = tile % p.columns * 4u;
  let row = (tile / p.columns) % p.rows * 8u;
  let n = z / p.groups;
  let g = z % p.groups;
  let k_start = p.k_at + n * p.k_n + g * p.k_h;
  let ka = k_start + min(t, p.n - 1u) * p.k_t;
  let kb = k_start + min(t + 1u, p.n - 1u) * p.k_t;
  let kc = k_start + min(t + 2u, p.n - 1u) * p.k_t;
  let kd = k_start + min(t + 3u, p.n - 1u) * p.k_t;
  let a0 = q_start(n, g, row); let a1 = q_start(n, g, row + 1u);
  let a2 = q_start(n, g, row + 2u); let a3 = q_start(n, g, row + 3u);
  let a4 = q_start(n, g, row + 4u); let a5 = q_start(n, g, row + 5u);
  let a6 = q_start(n, g, row + 6u); let a7 = q_start(n, g, row + 7u);
  var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
  var c4 = vec4<f32>(); var c5 = vec4<f32>(); var c6 = vec4<f32>(); var c7 = vec4<f32>();
  for (var d = 0u; d < p.head; d += 4u) {
    let k0 = k4(ka, d); let k1 = k4(kb, d); let k2 = k4(kc, d); let k3 = k4(kd, d);
    c0 += against(q4(a0, d), k0, k1, k2, k3);
    c1 += against(q4(a1, d), k0, k1, k2, k3);
    c2 += against(q4(a2, d), k0, k1, k2, k3);
    c3 += against(q4(a3, d), k0, k1, k2, k3);
    c4 += against(q4(a4, d), k0, k1, k2, k3);
    c5 += against(q4(a5, d), k0, k1, k2, k3);
    c6 += against(q4(a6, d), k0, k1, k2, k3);
    c7 += against(q4(a7, d), k0, k1, k2, k3);
  }
  var results = array<vec4<f32>, 8>(c0, c1, c2, c3, c4, c5, c6, c7);
  let last = min(8u, p.m - row);
  let outside = vec4<u32>(t, t + 1u, t + 2u, t + 3u) >= vec4<u32>(p.n);
  for (var j = 0u; j < last; j++) {
    let r = z * p.m + row + j;
    let i = r * p.n + t;
    let v = results[j];
    let e = vec4<f32>(epilogue(v.x, i), epilogue(v.y, i + 1u), epilogue(v.z, i + 2u), epilogue(v.w, i + 3u));
    out[r * p.row + (t >> 2u)] = select(e, vec4<f32>(bitcast<f32>(p.lowest)), outside);
  }
}
