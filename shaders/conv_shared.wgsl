//! bindings x w * out:w
//! params images rows columns blocks size_0 size_1 kernel_1 stride_0 stride_1 dilation_0 dilation_1 pad_0 pad_1 taps fours row_fours group_blocks outs all weights *
//! consts PIXELS SPAN LANES
//! fns tile

// conv_last where the LANES invocations of a workgroup are one subgroup and have PIXELS pixels in common, in the order in
// which they are stored: each loads some of them, and all read those from its registers. LANES must be the subgroup's size.
// The workgroup computes SPAN of a group's output channels.
@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
  let at = group.y * groups.x + group.x;
  let spans = (p.outs + SPAN - 1u) / SPAN;
  let tiles = (p.images * p.rows * p.columns + PIXELS - 1u) / PIXELS;
  let own = at / spans;
  if (own / tiles * p.group_blocks >= p.blocks) { return; }
  tile(own % tiles * PIXELS, at % spans, own / tiles, lane);
}
