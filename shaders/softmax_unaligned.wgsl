//! bindings x out:w
//! params n length lowest
//! consts LOG MASKED GROUP
//! use nan float unit4

// What softmax_rows does, of rows that are no whole fours: one invocation reads the vectors that lie within its row as such, and up to
// three elements before and after them one by one.
struct Row { begin: u32, head: u32, tail: u32, edges: u32 }

// The place of edge element k: those before the vectors first.
fn edge(row: Row, k: u32) -> u32 {
  let before = row.head - row.begin;
  return select(row.tail + (k - before), row.begin + k, k < before);
}
fn load_edge(row: Row, k: u32) -> f32 {
  let i = edge(row, k);
  return x[i >> 2u][i & 3u];
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = (group.y * groups.x + group.x) * GROUP + local;
  let length = p.length;
  if (at >= p.n) { return; }
  let begin = at * length;
  let end = begin + length;
  let head = min((begin + 3u) & ~3u, end);
  let tail = max(end & ~3u, head);
  let row = Row(begin, head, tail, (head - begin) + (end - tail));
  let first = (head + 3u) >> 2u;
  let last = tail >> 2u;
  let lowest = bitcast<f32>(p.lowest);
  var top = lowest;
  for (var k = 0u; k < row.edges; k += 1u) { top = max_nan(top, load_edge(row, k)); }
  var tops = vec4<f32>(lowest);
  for (var u = first; u < last; u += 1u) { tops = larger(tops, x[u]); }
  top = max_nan(top, across_max(tops));
  let hidden = MASKED && bitcast<u32>(top) == p.lowest;
  top = select(top, 0.0, hidden);
  var sum = 0.0;
  for (var k = 0u; k < row.edges; k += 1u) { sum += exp(load_edge(row, k) - top); }
  var sums = vec4<f32>(0.0);
  for (var u = first; u < last; u += 1u) { sums += exp(x[u] - top); }
  sum += across_sum(sums);
  let finite = !(is_nan(top) || is_inf(top));
  let shift = select(f32_nan(), log(sum), finite);
  let scale = select(select(f32_nan(), 1.0 / sum, finite), 0.0, hidden);
  for (var k = 0u; k < row.edges; k += 1u) {
    let v = load_edge(row, k) - top;
    out[edge(row, k)] = select(exp(v) * scale, v - shift, LOG);
  }
  for (var u = first; u < last; u += 1u) {
    let v = x[u] - top;
    var r = v - shift;
    if (!LOG) { r = exp(v) * scale; }
    out[4u * u] = r.x;
    out[4u * u + 1u] = r.y;
    out[4u * u + 2u] = r.z;
    out[4u * u + 3u] = r.w;
  }
}
