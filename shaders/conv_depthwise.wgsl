//! bindings x w bias * out:w
//! params images channels multiplier rows columns bands runs *
//! consts WHOLE BAND RUN DILATION_1 DILATION_2 STRIDE_1 STRIDE_2
//! fns add_taps epilogue
//! use index

// A convolution in which every output channel reads one input channel: 2 rows of 4 pixels per invocation.
// add_taps(sum, block) is unrolled over BAND × RUN elements of the kernel: all of it (WHOLE), else blocks are walked.
// w is [output channel, tap]. Axes are 0 (depth), 1 (height) and 2 (width).

struct Tile { top: vec4<Out>, bottom: vec4<Out> }

// `plane` is where the input's plane starts, `y` and `x` the place of the block's first element, `w` its weight's index.
struct Block { plane: u32, y: i32, x: i32, w: u32 }

fn line_start(block: Block, y: i32) -> u32 {
  return block.plane + u32(y * i32(p.size_2) + block.x);
}

fn pixel(i: u32, inside: bool) -> Out {
  return select(Out(), load_x(i), inside);
}

fn store1(start: u32, column: u32, v: Out) {
  if (column < p.out_2) { out[start + column] = epilogue(v, start + column); }
}

fn store4(start: u32, column: u32, v: vec4<Out>) {
  store1(start, column, v.x); store1(start, column + 1u, v.y);
  store1(start, column + 2u, v.z); store1(start, column + 3u, v.w);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  var tile = flat_index(group, groups, local);
  let column = tile % p.columns * 4u; tile /= p.columns;
  let row = tile % p.rows * 2u; tile /= p.rows;
  let depth = tile % p.out_0; tile /= p.out_0;
  if (tile >= p.images * p.channels) { return; }
  let channel = tile % p.channels;
  var sum = Tile(vec4<Out>(load_bias(channel)), vec4<Out>(load_bias(channel)));
  var block: Block;
  block.plane = (tile / p.channels * (p.channels / p.multiplier) + channel / p.multiplier) * p.size_0 * p.size_1 * p.size_2;
  block.y = i32(row * STRIDE_1 - p.pad_1);
  block.x = i32(column * STRIDE_2 - p.pad_2);
  block.w = channel * p.kernel_0 * p.kernel_1 * p.kernel_2;
  if (WHOLE) {
    sum = add_taps(sum, block);
  } else {
    for (var k = 0u; k < p.kernel_0 * p.bands * p.runs; k++) {
      let run = k % p.runs;
      let band = k / p.runs % p.bands;
      let layer = k / (p.runs * p.bands);
      let z = i32(depth * p.stride_0 + layer * p.dilation_0 - p.pad_0);
      if (z < 0 || z >= i32(p.size_0)) { continue; }
      var part = block;
      part.plane += u32(z) * p.size_1 * p.size_2;
      part.y += i32(band * BAND * DILATION_1);
      part.x += i32(run * RUN * DILATION_2);
      part.w += (layer * p.kernel_1 + band * BAND) * p.kernel_2 + run * RUN;
      sum = add_taps(sum, part);
    }
  }
  let start = ((tile * p.out_0 + depth) * p.out_1 + row) * p.out_2;
  store4(start, column, sum.top);
  if (row + 1u < p.out_1) { store4(start + p.out_2, column, sum.bottom); }
}
