//! bindings x w bias * out:w
//! params images groups blocks first_block outer columns image_size out_channels taps links hop width step out_width *
//! consts ALONG_ROW
//! fns outer_source inner_source load4_w load4_bias epilogue
//! use index

// A convolution as a sum over taps and channels, without unfolding its input: 8 output channels of 8 pixels of one row
// in registers, the pixels `columns` apart so that neighbouring invocations read and write neighbours.
// A tap is a chain of `links` products, four in an expression: its channels, `hop` elements apart, or where there are
// few channels the kernel's elements along the row (ALONG_ROW), `hop` apart too; then each channel is a tap of its own.
// w is [group, block of 8 output channels, tap, link, 8], links padded with zeros to a multiple of 4;
// of one group there may be `blocks` from first_block on.
// outer_source(o, tap) is where the input's row for output row o starts in its image, negative in the padding;
// inner_source(column, tap) is the position in that row for an output column; that of the next pixel is `step` further.

const OUTSIDE = -0x40000000;

struct Line { start: u32, at: vec4<i32>, inside: vec4<bool> }

fn within(at: vec4<i32>) -> vec4<bool> {
  return (at >= vec4<i32>()) & (at < vec4<i32>(i32(p.width)));
}

fn line_at(start: u32, first: i32) -> Line {
  let at = first + i32(p.step) * vec4<i32>(0, 1, 2, 3);
  return Line(start, at, within(at));
}

fn pixels(line: Line, link: u32) -> vec4<Out> {
  let i = bitcast<vec4<u32>>(line.at) + (line.start + link * p.hop);
  var inside = line.inside;
  if (ALONG_ROW) { inside = within(line.at + i32(link * p.hop)); }
  inside &= vec4<bool>(link < p.links);
  return select(vec4<Out>(), vec4<Out>(load_x(i.x), load_x(i.y), load_x(i.z), load_x(i.w)), inside);
}

fn store1(row: u32, column: u32, v: Out) {
  if (column < p.out_width) { out[row + column] = epilogue(v, row + column); }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  var tile = flat_index(group, groups, local);
  let column = tile % p.columns; tile /= p.columns;
  let row = tile % p.outer; tile /= p.outer;
  let block = tile % p.blocks;
  let image = tile / p.blocks;
  if (image >= p.images) { return; }
  let packed = image % p.groups * p.blocks + block;
  let biased = packed + p.first_block;
  let links = (p.links + 3u) & ~3u;
  let bias_low = load4_bias(biased * 8u);
  let bias_high = load4_bias(biased * 8u + 4u);
  var c0 = vec4<Out>(bias_low.x); var d0 = c0;
  var c1 = vec4<Out>(bias_low.y); var d1 = c1;
  var c2 = vec4<Out>(bias_low.z); var d2 = c2;
  var c3 = vec4<Out>(bias_low.w); var d3 = c3;
  var c4 = vec4<Out>(bias_high.x); var d4 = c4;
  var c5 = vec4<Out>(bias_high.y); var d5 = c5;
  var c6 = vec4<Out>(bias_high.z); var d6 = c6;
  var c7 = vec4<Out>(bias_high.w); var d7 = c7;
  for (var tap = 0u; tap < p.taps; tap++) {
    let source = outer_source(row, tap);
    let first = inner_source(column, tap);
    if (source < 0 || first == OUTSIDE) { continue; }
    let start = image * p.image_size + u32(source);
    let near = line_at(start, first);
    let far = line_at(start, first + 4 * i32(p.step));
    for (var link = 0u; link < links; link += 4u) {
      let wt = ((packed * p.taps + tap) * links + link) * 8u;
      let x0 = pixels(near, link + 0u); let y0 = pixels(far, link + 0u);
      let x1 = pixels(near, link + 1u); let y1 = pixels(far, link + 1u);
      let x2 = pixels(near, link + 2u); let y2 = pixels(far, link + 2u);
      let x3 = pixels(near, link + 3u); let y3 = pixels(far, link + 3u);
      let w0 = load4_w(wt + 0u); let w1 = load4_w(wt + 8u); let w2 = load4_w(wt + 16u); let w3 = load4_w(wt + 24u);
      let v0 = load4_w(wt + 4u); let v1 = load4_w(wt + 12u); let v2 = load4_w(wt + 20u); let v3 = load4_w(wt + 28u);
      c0 += w0.x * x0 + w1.x * x1 + w2.x * x2 + w3.x * x3;
      d0 += w0.x * y0 + w1.x * y1 + w2.x * y2 + w3.x * y3;
      c1 += w0.y * x0 + w1.y * x1 + w2.y * x2 + w3.y * x3;
      d1 += w0.y * y0 + w1.y * y1 + w2.y * y2 + w3.y * y3;
      c2 += w0.z * x0 + w1.z * x1 + w2.z * x2 + w3.z * x3;
      d2 += w0.z * y0 + w1.z * y1 + w2.z * y2 + w3.z * y3;
      c3 += w0.w * x0 + w1.w * x1 + w2.w * x2 + w3.w * x3;
      d3 += w0.w * y0 + w1.w * y1 + w2.w * y2 + w3.w * y3;
      c4 += v0.x * x0 + v1.x * x1 + v2.x * x2 + v3.x * x3;
      d4 += v0.x * y0 + v1.x * y1 + v2.x * y2 + v3.x * y3;
      c5 += v0.y * x0 + v1.y * x1 + v2.y * x2 + v3.y * x3;
      d5 += v0.y * y0 + v1.y * y1 + v2.y * y2 + v3.y * y3;
      c6 += v0.z * x0 + v1.z * x1 + v2.z * x2 + v3.z * x3;
      d6 += v0.z * y0 + v1.z * y1 + v2.z * y2 + v3.z * y3;
      c7 += v0.w * x0 + v1.w * x1 + v2.w * x2 + v3.w * x3;
      d7 += v0.w * y0 + v1.w * y1 + v2.w * y2 + v3.w * y3;
    }
  }
  var results = array<vec4<Out>, 16>(c0, d0, c1, d1, c2, d2, c3, d3, c4, d4, c5, d5, c6, d6, c7, d7);
  let first_out = (p.first_block + block) * 8u;
  let last = min(8u, p.out_channels - first_out);
  for (var i = 0u; i < 2u * last; i++) {
    let out_channel = image * p.out_channels + first_out + (i >> 1u);
    let start = (out_channel * p.outer + row) * p.out_width;
    let first = column + (i & 1u) * 4u * p.columns;
    let v = results[i];
    store1(start, first, v.x);
    store1(start, first + p.columns, v.y);
    store1(start, first + 2u * p.columns, v.z);
    store1(start, first + 3u * p.columns, v.w);
  }
}
