//! bindings x w * out:w
//! params images fours rows columns size_0 size_1 kernel_0 kernel_1 stride_0 stride_1 dilation_0 dilation_1 pad_0 pad_1 *
//! consts ROWS COLUMNS
//! fns tile epilogue4
//! use index

// A depthwise convolution of channels-last images: ROWS × COLUMNS pixels of four channels per invocation.
// w is [tap, channel], then the biases. Neighbouring invocations hold neighbouring channels.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = flat_index(group, groups, local);
  let place = i / p.fours;
  let four = i - place * p.fours;
  let tile_columns = (p.columns + COLUMNS - 1u) / COLUMNS;
  let line = place / tile_columns;
  let column = (place - line * tile_columns) * COLUMNS;
  let tile_rows = (p.rows + ROWS - 1u) / ROWS;
  let image = line / tile_rows;
  let row = (line - image * tile_rows) * ROWS;
  if (image < p.images) { tile(image, row, column, four); }
}
