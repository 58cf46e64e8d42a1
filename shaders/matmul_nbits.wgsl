//! bindings a w scale * out:w
//! params m n k fours words words_per_block *
//! consts HALVES PARTS
//! fns load4_a zero_at epilogue
//! use index

// out[row, column] = sum over k of a[row, k] * scale * (w - zero): 4 rows of one column per invocation.
// w is [word, column]: a word holds 4 numbers of 8 bits along k, or 8 of 4 bits (HALVES 2: k … k+3 are the low halves
// of its bytes, k+4 … k+7 the high ones). scale is [block, (scale, zero), column], or without zeros where PARTS is 1.

struct Sums { low: vec4<f32>, high: vec4<f32> }

fn products(at: u32, q: Sums) -> f32 {
  let low = dot(load4_a(at), q.low);
  if (HALVES == 1u) { return low; }
  return low + dot(load4_a(at + 4u), q.high);
}

fn bytes(word: u32) -> vec4<f32> {
  return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
}

fn numbers(word: u32, zero: f32) -> Sums {
  if (HALVES == 1u) { return Sums(bytes(word) - zero, vec4<f32>()); }
  return Sums(bytes(word & 0x0f0f0f0fu) - zero, bytes((word >> 4u) & 0x0f0f0f0fu) - zero);
}

fn store1(row: u32, column: u32, v: f32) {
  if (row < p.m) { out[row * p.n + column] = epilogue(v, row * p.n + column); }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let tile = flat_index(group, groups, local);
  let column = tile % p.n;
  let row = tile / p.n * 4u;
  if (row >= p.m) { return; }
  var sums = vec4<f32>();
  for (var first = 0u; first < p.words; first += p.words_per_block) {
    let at = first / p.words_per_block * PARTS * p.n + column;
    let scale = load_scale(at);
    let zero = zero_at(at);
    var block = vec4<f32>();
    for (var word = first; word < min(first + p.words_per_block, p.words); word++) {
      let q = numbers(load_w(word * p.n + column), zero);
      let k = row * p.k + word * 4u * HALVES;
      block += vec4<f32>(products(k, q), products(k + p.k, q), products(k + 2u * p.k, q), products(k + 3u * p.k, q));
    }
    sums += scale * block;
  }
  store1(row, column, sums.x);
  store1(row + 1u, column, sums.y);
  store1(row + 2u, column, sums.z);
  store1(row + 3u, column, sums.w);
}
