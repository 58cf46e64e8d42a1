//! bindings x w * out:w
//! params images rows columns blocks size_0 size_1 kernel_1 stride_0 stride_1 dilation_0 dilation_1 pad_0 pad_1 taps fours row_fours group_blocks outs all weights *
//! consts PIXELS LANES
//! fns tile

// conv_last where the LANES invocations of a workgroup are one subgroup and have PIXELS pixels in common, in the order in
// which they are stored, of one span of a group's output channels. LANES must be the subgroup's size. Nothing is divided
// to find out which: software adapters divide lane by lane.
@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
  tile((group.z * groups.y + group.y) * PIXELS, group.x, lane);
}
