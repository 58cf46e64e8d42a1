//! bindings x w * out:w
//! params images rows columns tiles blocks size_0 size_1 kernel_1 stride_0 stride_1 dilation_0 dilation_1 pad_0 pad_1 taps fours row_fours group_blocks outs all tap_weights weights *
//! consts PIXELS
//! fns tile place
//! use index

// A convolution of channels-last images as a sum over taps and channels: PIXELS neighbours of one row times a block of
// output channels in registers. `x` and `out` are [image, row, column, channel].
// w is [block, tap, four of input channels, input channel in it, output channel in the block], then the block's biases.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  var i = flat_index(group, groups, local);
  let column = i % p.tiles * PIXELS; i /= p.tiles;
  let row = i % p.rows; i /= p.rows;
  let image = i % p.images; i /= p.images;
  if (i < p.blocks) { tile(image, row, column, i); }
}
