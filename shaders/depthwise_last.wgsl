//! bindings x w * out:w
//! params images fours tile_columns rows columns size_0 size_1 kernel_0 kernel_1 stride_0 stride_1 dilation_0 dilation_1 pad_0 pad_1 *
//! consts ROWS COLUMNS
//! fns tile epilogue4
//! use index

// A depthwise convolution of channels-last images: ROWS × COLUMNS pixels of four channels per invocation.
// w is [tap, channel], then the biases. Neighbouring invocations hold neighbouring channels.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  var i = flat_index(group, groups, local);
  let four = i % p.fours; i /= p.fours;
  let column = i % p.tile_columns * COLUMNS; i /= p.tile_columns;
  let tile_rows = (p.rows + ROWS - 1u) / ROWS;
  let row = i % tile_rows * ROWS; i /= tile_rows;
  if (i < p.images) { tile(i, row, column, four); }
}
