//! bindings q k v * out:w
//! params m n batches groups share steps splits span *
//! consts HEAD WIDTH LOW
//! fns load4_q load4_k load4_v q_start epilogue result_at result_scale result_sums result4
//! use nan float

// attention_online for few rows: a workgroup has one, an invocation every 64th logit, then four columns of every
// SLICES-th value. HEAD fours of a key, WIDTH of a value.

const SLICES = 64u / WIDTH;
var<workgroup> weights: array<f32, 64>;
var<workgroup> sums: array<vec4<f32>, 64>;

// The logit of a key, -inf from `last` on.
fn logit(q_at: u32, k_start: u32, i: u32, key: u32, last: u32) -> f32 {
  let t = min(key, last - 1u);
  let k_at = k_start + t * p.k_t;
  var c = vec4<f32>();
  for (var d = 0u; d < HEAD; d++) { c += load4_q(q_at + d) * load4_k(k_at + d); }
  return select(epilogue((c.x + c.y) + (c.z + c.w), i + t), -f32_inf(), key >= last);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = group.y * nwg.x + group.x;
  if (at >= p.m * p.splits * p.batches) { return; }
  let part = at % p.splits;
  let row = at / p.splits % p.m;
  let z = at / p.splits / p.m;
  let n = z / p.groups;
  let g = z % p.groups;
  let first = part * p.span;
  let last = min(first + p.span, p.n);
  let q_at = q_start(n, g, row);
  let k_start = p.k_at + n * p.k_n + g * p.k_h;
  let v_start = p.v_at + n * p.v_n + g * p.v_h + local % WIDTH;
  let slice = local / WIDTH;
  var top = LOW;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var t = first; t < last; t += 64u) {
    let c = logit(q_at, k_start, (z * p.m + row) * p.n, t + local, last);
    weights[local] = c;
    workgroupBarrier();
    var next = top;
    for (var j = 0u; j < 64u; j++) { next = max(next, weights[j]); }
    workgroupBarrier();
    weights[local] = exp(c - next);
    workgroupBarrier();
    let scale = exp(top - next);
    top = next;
    total *= scale;
    sum *= scale;
    let end = select(0u, min(64u, last - t), slice < SLICES);
    for (var j = slice; j < end; j += SLICES) {
      total += weights[j];
      sum += weights[j] * load4_v(v_start + (t + j) * p.v_t);
    }
    workgroupBarrier();
  }
  weights[local] = total;
  sums[local] = sum;
  workgroupBarrier();
  if (local >= WIDTH) { return; }
  for (var s = 1u; s < SLICES; s++) {
    total += weights[local + s * WIDTH];
    sum += sums[local + s * WIDTH];
  }
  let to = result_at(n, g, z, row, part);
  if (local == 0u) { result_sums(to, total, top); }
  result4(to, 4u * local, sum, result_scale(total));
}
