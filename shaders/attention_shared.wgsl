//! bindings q k v * out:w
//! params m n batches groups share steps splits span *
//! consts HEAD WIDTH KEYS
//! fns load4_k load4_v tile
//! use nan float

// attention_online where a workgroup holds KEYS keys and values at a time in its memory and each invocation has a row:
// HEAD fours of a key, WIDTH of a value.

var<workgroup> k_tile: array<vec4<f32>, KEYS * HEAD>;
var<workgroup> v_tile: array<vec4<f32>, KEYS * WIDTH>;

// Places past the last key are as the last, with values of 0.
fn fetch(local: u32, k_start: u32, v_start: u32, first: u32, last: u32) {
  for (var i = local; i < KEYS * HEAD; i += 64u) {
    k_tile[i] = load4_k(k_start + min(first + i / HEAD, last - 1u) * p.k_t + i % HEAD);
  }
  for (var i = local; i < KEYS * WIDTH; i += 64u) {
    let key = first + i / WIDTH;
    v_tile[i] = select(vec4<f32>(), load4_v(v_start + min(key, last - 1u) * p.v_t + i % WIDTH), key < last);
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let at = group.y * nwg.x + group.x;
  let rows = (p.m + 63u) / 64u;
  if (at >= rows * p.splits * p.batches) { return; }
  let tiles = at / p.splits;
  tile(tiles / rows, tiles % rows * 64u + local, 1u, at % p.splits, local);
}
