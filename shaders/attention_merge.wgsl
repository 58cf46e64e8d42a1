//! bindings part out:w
//! params m batches groups share steps splits fours o_n o_h o_s o_d o_at
//! fns store4 result_factor
//! use index nan float

// The attention of a row from those of p.splits spans of keys: p.fours fours of sums each, then the sum of their weights and
// the largest logit.

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = flat_index(group, nwg, local);
  let four = at % p.fours;
  let row = at / p.fours % p.m;
  let z = at / p.fours / p.m;
  if (z >= p.batches) { return; }
  let step = p.batches * p.m * (p.fours + 1u);
  let start = (z * p.m + row) * (p.fours + 1u);
  var top = part[start + p.fours].y;
  for (var s = 1u; s < p.splits; s++) { top = max(top, part[start + s * step + p.fours].y); }
  var total = 0.0;
  var sum = vec4<f32>();
  for (var s = 0u; s < p.splits; s++) {
    let place = start + s * step;
    let last = part[place + p.fours];
    let weight = exp(last.y - top);
    total += weight * last.x;
    sum += weight * part[place + four];
  }
  let n = z / p.groups;
  let head = z % p.groups * p.share + row / p.steps;
  let factor = result_factor(total);
  let result = select(sum * factor, vec4<f32>(), factor == 0.0);
  store4(p.o_at + n * p.o_n + head * p.o_h + row % p.steps * p.o_s, 4u * four, result);
}
