//! bindings x w * out:w
//! params images rows columns blocks size_0 size_1 kernel_1 stride_0 stride_1 dilation_0 dilation_1 pad_0 pad_1 taps fours row_fours group_blocks outs all tap_weights weights *
//! consts PIXELS APART SPAN LANES
//! fns tile

// conv_last where an invocation computes PIXELS of a row's pixels that are APART, and SPAN of a group's output channels:
// what it loads of a row serves several taps. Weights may be shared by its quad, which all run through the same spans.
@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.y * groups.x + group.x;
  let spans = (p.outs + SPAN - 1u) / SPAN;
  let in_row = (p.columns + PIXELS * APART - 1u) / (PIXELS * APART) * APART;
  let tiles = p.images * p.rows * in_row;
  let own = at / spans;
  let strides = (tiles + LANES - 1u) / LANES;
  let part = own / strides;
  if (part * p.group_blocks >= p.blocks) { return; }
  let tile_at = min((own - part * strides) * LANES + lane, tiles - 1u);
  let line = tile_at / in_row;
  let t = tile_at - line * in_row;
  let image = line / p.rows;
  let run = t / APART;
  tile(image, line - image * p.rows, run * (PIXELS * APART) + t - run * APART, at - own * spans, part, lane);
}
