//! bindings x w bias * out:w
//! params batches channels multiplier outer columns lines runs width plane out_width *
//! consts CHUNK
//! fns outer_source inner_source tap_row epilogue
//! use index

// A convolution in which every output channel reads one input channel: 8 neighbouring pixels of one row per invocation.
// w is [output channel, tap]; `lines` counts the rows of the kernel, each `runs` runs of CHUNK taps; tap_row adds one run.
// outer_source(o, tap) is where the input's row for output row o starts in its plane, negative in the padding;
// inner_source(column, tap) is the position in that row for an output column.

struct Pixels { low: vec4<Out>, high: vec4<Out> }

fn pixel(line: u32, at: i32) -> Out {
  return select(Out(), load_x(line + u32(at)), at >= 0 && at < i32(p.width));
}

fn store1(row: u32, column: u32, v: Out) {
  if (column < p.out_width) { out[row + column] = epilogue(v, row + column); }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  var tile = flat_index(group, groups, local);
  let column = tile % p.columns * 8u; tile /= p.columns;
  let row = tile % p.outer; tile /= p.outer;
  if (tile >= p.batches * p.channels) { return; }
  let channel = tile % p.channels;
  let plane = (tile / p.channels * (p.channels / p.multiplier) + channel / p.multiplier) * p.plane;
  var sum = Pixels(vec4<Out>(load_bias(channel)), vec4<Out>(load_bias(channel)));
  for (var line = 0u; line < p.lines; line++) {
    let source = outer_source(row, line * CHUNK * p.runs);
    if (source < 0) { continue; }
    for (var run = 0u; run < p.runs; run++) {
      let tap = (line * p.runs + run) * CHUNK;
      let weights = (channel * p.lines * p.runs + line * p.runs + run) * CHUNK;
      sum = tap_row(sum, plane + u32(source), inner_source(column, tap), weights);
    }
  }
  let start = (tile * p.outer + row) * p.out_width;
  store1(start, column, sum.low.x);
  store1(start, column + 1u, sum.low.y);
  store1(start, column + 2u, sum.low.z);
  store1(start, column + 3u, sum.low.w);
  store1(start, column + 4u, sum.high.x);
  store1(start, column + 5u, sum.high.y);
  store1(start, column + 6u, sum.high.z);
  store1(start, column + 7u, sum.high.w);
}
