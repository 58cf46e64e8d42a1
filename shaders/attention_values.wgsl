//! bindings w v out:w
//! params m n head row rows columns batches groups steps v_n v_h v_t v_d v_at o_n o_h o_s o_d o_at lowest
//! consts EMPTY
//! fns v4 store4
//! use index nan float unit4

// out[z, row, d] = sum over t of softmax(w[z, row])[t] * v[z, t, d]: 4 rows and 16 columns in registers. Rows of w are
// p.row units of four, padded with -inf; rows of z are those of all query heads that share value head z % p.groups.
// EMPTY: 0: a row whose largest element is not finite is NaN. 1: but 0 where that is -inf. 2: 0 then in all cases.

fn factor(top: f32, sum: f32) -> f32 {
  let finite = !(is_nan(top) || is_inf(top));
  return select(f32_nan(), 1.0 / sum, finite);
}

fn is_empty(top: f32, lowest: u32) -> bool {
  let word = bitcast<u32>(top);
  return (EMPTY == 1u && word == lowest) || (EMPTY == 2u && (word & 0x7fffffffu) >= 0x7f800000u);
}

fn base_of(top: f32) -> f32 { return select(top, 0.0, is_empty(top, p.lowest)); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let tile = flat_index(group, nwg, local);
  let z = tile / (p.columns * p.rows);
  if (z >= p.batches) { return; }
  let d = tile % p.columns * 16u;
  let row = (tile / p.columns) % p.rows * 4u;
  let n = z / p.groups;
  let g = z % p.groups;
  let v_start = p.v_at + n * p.v_n + g * p.v_h;
  let w0 = (z * p.m + min(row + 0u, p.m - 1u)) * p.row;
  let w1 = (z * p.m + min(row + 1u, p.m - 1u)) * p.row;
  let w2 = (z * p.m + min(row + 2u, p.m - 1u)) * p.row;
  let w3 = (z * p.m + min(row + 3u, p.m - 1u)) * p.row;
  var top0 = vec4<f32>(bitcast<f32>(p.lowest));
  var top1 = vec4<f32>(bitcast<f32>(p.lowest));
  var top2 = vec4<f32>(bitcast<f32>(p.lowest));
  var top3 = vec4<f32>(bitcast<f32>(p.lowest));
  for (var k = 0u; k < p.row; k += 1u) {
    top0 = larger(top0, w[w0 + k]);
    top1 = larger(top1, w[w1 + k]);
    top2 = larger(top2, w[w2 + k]);
    top3 = larger(top3, w[w3 + k]);
  }
  let t0 = across_max(top0); let m0 = base_of(t0);
  let t1 = across_max(top1); let m1 = base_of(t1);
  let t2 = across_max(top2); let m2 = base_of(t2);
  let t3 = across_max(top3); let m3 = base_of(t3);
  var s0 = vec4<f32>(); var a0 = vec4<f32>(); var b0 = vec4<f32>(); var c0 = vec4<f32>(); var e0 = vec4<f32>();
  var s1 = vec4<f32>(); var a1 = vec4<f32>(); var b1 = vec4<f32>(); var c1 = vec4<f32>(); var e1 = vec4<f32>();
  var s2 = vec4<f32>(); var a2 = vec4<f32>(); var b2 = vec4<f32>(); var c2 = vec4<f32>(); var e2 = vec4<f32>();
  var s3 = vec4<f32>(); var a3 = vec4<f32>(); var b3 = vec4<f32>(); var c3 = vec4<f32>(); var e3 = vec4<f32>();
  let whole = p.n >> 2u;
  for (var k = 0u; k < whole; k += 1u) {
    let x0 = exp(w[w0 + k] - m0); s0 += x0;
    let x1 = exp(w[w1 + k] - m1); s1 += x1;
    let x2 = exp(w[w2 + k] - m2); s2 += x2;
    let x3 = exp(w[w3 + k] - m3); s3 += x3;
    var at = v_start + k * 4u * p.v_t;
    {
      let va = v4(at, d); let vb = v4(at, d + 4u); let vc = v4(at, d + 8u); let ve = v4(at, d + 12u);
      a0 += x0.x * va; b0 += x0.x * vb; c0 += x0.x * vc; e0 += x0.x * ve;
      a1 += x1.x * va; b1 += x1.x * vb; c1 += x1.x * vc; e1 += x1.x * ve;
      a2 += x2.x * va; b2 += x2.x * vb; c2 += x2.x * vc; e2 += x2.x * ve;
      a3 += x3.x * va; b3 += x3.x * vb; c3 += x3.x * vc; e3 += x3.x * ve;
      at += p.v_t;
    }
    {
      let va = v4(at, d); let vb = v4(at, d + 4u); let vc = v4(at, d + 8u); let ve = v4(at, d + 12u);
      a0 += x0.y * va; b0 += x0.y * vb; c0 += x0.y * vc; e0 += x0.y * ve;
      a1 += x1.y * va; b1 += x1.y * vb; c1 += x1.y * vc; e1 += x1.y * ve;
      a2 += x2.y * va; b2 += x2.y * vb; c2 += x2.y * vc; e2 += x2.y * ve;
      a3 += x3.y * va; b3 += x3.y * vb; c3 += x3.y * vc; e3 += x3.y * ve;
      at += p.v_t;
    }
    {
      let va = v4(at, d); let vb = v4(at, d + 4u); let vc = v4(at, d + 8u); let ve = v4(at, d + 12u);
      a0 += x0.z * va; b0 += x0.z * vb; c0 += x0.z * vc; e0 += x0.z * ve;
      a1 += x1.z * va; b1 += x1.z * vb; c1 += x1.z * vc; e1 += x1.z * ve;
      a2 += x2.z * va; b2 += x2.z * vb; c2 += x2.z * vc; e2 += x2.z * ve;
      a3 += x3.z * va; b3 += x3.z * vb; c3 += x3.z * vc; e3 += x3.z * ve;
      at += p.v_t;
    }
    {
      let va = v4(at, d); let vb = v4(at, d + 4u); let vc = v4(at, d + 8u); let ve = v4(at, d + 12u);
      a0 += x0.w * va; b0 += x0.w * vb; c0 += x0.w * vc; e0 += x0.w * ve;
      a1 += x1.w * va; b1 += x1.w * vb; c1 += x1.w * vc; e1 += x1.w * ve;
      a2 += x2.w * va; b2 += x2.w * vb; c2 += x2.w * vc; e2 += x2.w * ve;
      a3 += x3.w * va; b3 += x3.w * vb; c3 += x3.w * vc; e3 += x3.w * ve;
      at += p.v_t;
    }
  }
  for (var t = whole * 4u; t < p.n; t += 1u) {
    let at = v_start + t * p.v_t;
    let va = v4(at, d); let vb = v4(at, d + 4u); let vc = v4(at, d + 8u); let ve = v4(at, d + 12u);
    let x0 = exp(w[w0 + (t >> 2u)][t & 3u] - m0); s0.x += x0;
    a0 += x0 * va; b0 += x0 * vb; c0 += x0 * vc; e0 += x0 * ve;
    let x1 = exp(w[w1 + (t >> 2u)][t & 3u] - m1); s1.x += x1;
    a1 += x1 * va; b1 += x1 * vb; c1 += x1 * vc; e1 += x1 * ve;
    let x2 = exp(w[w2 + (t >> 2u)][t & 3u] - m2); s2.x += x2;
    a2 += x2 * va; b2 += x2 * vb; c2 += x2 * vc; e2 += x2 * ve;
    let x3 = exp(w[w3 + (t >> 2u)][t & 3u] - m3); s3.x += x3;
    a3 += x3 * va; b3 += x3 * vb; c3 += x3 * vc; e3 += x3 * ve;
  }
  var results = array<vec4<f32>, 16>(a0, b0, c0, e0, a1, b1, c1, e1, a2, b2, c2, e2, a3, b3, c3, e3);
  let tops = vec4<f32>(t0, t1, t2, t3);
  let sums = vec4<f32>(across_sum(s0), across_sum(s1), across_sum(s2), across_sum(s3));
  let last = min(4u, p.m - row);
  for (var j = 0u; j < last; j++) {
    let r = row + j;
    let at = p.o_at + n * p.o_n + (g * (p.m / p.steps) + r / p.steps) * p.o_h + r % p.steps * p.o_s;
    let empty = is_empty(tops[j], p.lowest);
    let scale = factor(tops[j], sums[j]);
    for (var c = 0u; c < 4u; c++) {
      store4(at, d + 4u * c, select(results[4u * j + c] * scale, vec4<f32>(), empty));
    }
  }
}
