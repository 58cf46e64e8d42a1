//! bindings x * out:w
//! params n length epsilon
//! consts CENTRED GROUP
//! types V
//! fns affine4 unit_x keep_out
//! use nan unit4

// norm_rows for software adapters: one invocation per four rows of p.length vectors, which share what is loaded of scale and bias. Mean
// and squares of the differences to it are had in one pass (Welford), for each of the four lanes of a row, and joined then (Chan et al.).
fn four(at: vec4<u32>) -> mat4x4<f32> { return mat4x4<f32>(unit_x(at.x), unit_x(at.y), unit_x(at.z), unit_x(at.w)); }
fn times(a: mat4x4<f32>, b: mat4x4<f32>) -> mat4x4<f32> { return mat4x4<f32>(a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]); }
fn less(a: mat4x4<f32>, v: vec4<f32>) -> mat4x4<f32> { return mat4x4<f32>(a[0] - v.x, a[1] - v.y, a[2] - v.z, a[3] - v.w); }
fn sums(a: mat4x4<f32>) -> vec4<f32> { return vec4<f32>(across_sum(a[0]), across_sum(a[1]), across_sum(a[2]), across_sum(a[3])); }

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = 4u * ((group.y * groups.x + group.x) * GROUP + local);
  let count = p.n;
  if (row >= count) { return; }
  let length = p.length;
  let base = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * length;
  var mean = vec4<f32>(0.0);
  var squares = vec4<f32>(0.0);
  if (CENTRED) {
    var means = mat4x4<f32>();
    var spread = mat4x4<f32>();
    var seen = 0.0;
    for (var k = 0u; k < length; k += 1u) {
      let v = four(base + k);
      seen += 1.0;
      let d = v - means;
      means += (1.0 / seen) * d;
      spread += times(d, v - means);
    }
    mean = 0.25 * sums(means);
    let apart = less(means, mean);
    squares = sums(spread) + f32(length) * sums(times(apart, apart));
  } else {
    var spread = mat4x4<f32>();
    for (var k = 0u; k < length; k += 1u) {
      let v = four(base + k);
      spread += times(v, v);
    }
    squares = sums(spread);
  }
  let factor = 1.0 / sqrt(squares / f32(4u * length) + bitcast<f32>(p.epsilon));
  for (var k = 0u; k < length; k += 1u) {
    let at = base + k;
    let v = less(four(at), mean);
    let r = affine4(mat4x4<f32>(v[0] * factor.x, v[1] * factor.y, v[2] * factor.z, v[3] * factor.w), k);
    keep_out(at.x, r[0]);
    keep_out(at.y, r[1]);
    keep_out(at.z, r[2]);
    keep_out(at.w, r[3]);
  }
}
