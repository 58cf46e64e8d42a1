//! bindings a b * out:w
//! params m n k b_row k_first k_last rows columns batches *
//! consts COLUMNS_APART K_TAIL
//! fns batch_offsets load4_a columns_b store4 epilogue
//! use index

// out[z, row, column] = sum over k of a[z, row, k] * b[z, k, column]: 8 rows and two vectors of 4 columns in registers.
// Neighbouring invocations take neighbouring columns; rows and columns past the end are computed and not stored.

fn chain(c: vec4<Out>, a: vec4<Out>, b0: vec4<Out>, b1: vec4<Out>, b2: vec4<Out>, b3: vec4<Out>) -> vec4<Out> {
  return c + (a.x * b0 + a.y * b1 + a.z * b2 + a.w * b3);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let tile = flat_index(group, groups, local);
  let z = tile / (p.columns * p.rows);
  if (z >= p.batches) { return; }
  let first = tile % p.columns;
  let second = first + COLUMNS_APART * p.columns;
  let row = (tile / p.columns) % p.rows * 8u;
  let offsets = batch_offsets(z);
  let a_start = offsets.x + row * p.k;
  var c0 = vec4<Out>(); var d0 = vec4<Out>();
  var c1 = vec4<Out>(); var d1 = vec4<Out>();
  var c2 = vec4<Out>(); var d2 = vec4<Out>();
  var c3 = vec4<Out>(); var d3 = vec4<Out>();
  var c4 = vec4<Out>(); var d4 = vec4<Out>();
  var c5 = vec4<Out>(); var d5 = vec4<Out>();
  var c6 = vec4<Out>(); var d6 = vec4<Out>();
  var c7 = vec4<Out>(); var d7 = vec4<Out>();
  var k = p.k_first;
  for (; k + 4u <= p.k_last; k += 4u) {
    let at = a_start + k;
    let bt = offsets.y + k * p.b_row;
    let e0 = columns_b(bt, first);
    let e1 = columns_b(bt + p.b_row, first);
    let e2 = columns_b(bt + 2u * p.b_row, first);
    let e3 = columns_b(bt + 3u * p.b_row, first);
    let f0 = columns_b(bt, second);
    let f1 = columns_b(bt + p.b_row, second);
    let f2 = columns_b(bt + 2u * p.b_row, second);
    let f3 = columns_b(bt + 3u * p.b_row, second);
    var x = load4_a(at);
    c0 = chain(c0, x, e0, e1, e2, e3); d0 = chain(d0, x, f0, f1, f2, f3);
    x = load4_a(at + p.k);
    c1 = chain(c1, x, e0, e1, e2, e3); d1 = chain(d1, x, f0, f1, f2, f3);
    x = load4_a(at + 2u * p.k);
    c2 = chain(c2, x, e0, e1, e2, e3); d2 = chain(d2, x, f0, f1, f2, f3);
    x = load4_a(at + 3u * p.k);
    c3 = chain(c3, x, e0, e1, e2, e3); d3 = chain(d3, x, f0, f1, f2, f3);
    x = load4_a(at + 4u * p.k);
    c4 = chain(c4, x, e0, e1, e2, e3); d4 = chain(d4, x, f0, f1, f2, f3);
    x = load4_a(at + 5u * p.k);
    c5 = chain(c5, x, e0, e1, e2, e3); d5 = chain(d5, x, f0, f1, f2, f3);
    x = load4_a(at + 6u * p.k);
    c6 = chain(c6, x, e0, e1, e2, e3); d6 = chain(d6, x, f0, f1, f2, f3);
    x = load4_a(at + 7u * p.k);
    c7 = chain(c7, x, e0, e1, e2, e3); d7 = chain(d7, x, f0, f1, f2, f3);
  }
  if (K_TAIL) {
    for (; k < p.k_last; k++) {
      let at = a_start + k;
      let e = columns_b(offsets.y + k * p.b_row, first);
      let f = columns_b(offsets.y + k * p.b_row, second);
      var x = load_a(at); c0 += x * e; d0 += x * f;
      x = load_a(at + p.k); c1 += x * e; d1 += x * f;
      x = load_a(at + 2u * p.k); c2 += x * e; d2 += x * f;
      x = load_a(at + 3u * p.k); c3 += x * e; d3 += x * f;
      x = load_a(at + 4u * p.k); c4 += x * e; d4 += x * f;
      x = load_a(at + 5u * p.k); c5 += x * e; d5 += x * f;
      x = load_a(at + 6u * p.k); c6 += x * e; d6 += x * f;
      x = load_a(at + 7u * p.k); c7 += x * e; d7 += x * f;
    }
  }
  var results = array<vec4<Out>, 16>(c0, d0, c1, d1, c2, d2, c3, d3, c4, d4, c5, d5, c6, d6, c7, d7);
  let last = min(8u, p.m - row);
  for (var i = 0u; i < 2u * last; i++) {
    store4((z * p.m + row + (i >> 1u)) * p.n, select(first, second, (i & 1u) == 1u), results[i]);
  }
}
