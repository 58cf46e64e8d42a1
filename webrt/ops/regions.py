"""RoiAlign and MaxRoiPool: regions of images pooled to one size.

Sources: the ONNX texts; sampling and rounding as onnxruntime's core/providers/cpu/object_detection/roialign.cc and
core/providers/cpu/nn/roi_pool.cc.
"""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, UnsupportedOp
from webrt.ir import Node
from webrt.lowering import MAX_ITERATIONS, Builder, Info, op, require
from webrt.ops.indices import index_fns

_FIRST_AND_LAST = """// The first sample inside -1 … size, and how many there are, of `count` samples `step` apart.
fn inside(first: f32, step: f32, count: u32, size: u32) -> vec2<u32> {
  if (step <= 0.0) { return vec2<u32>(0u, select(0u, count, first >= -1.0 && first <= f32(size))); }
  let low = clamp(ceil((-1.0 - first) / step), 0.0, f32(count));
  let high = clamp(floor((f32(size) - first) / step) + 1.0, low, f32(count));
  return vec2<u32>(u32(low), u32(high) - u32(low));
}"""

_ALIGN = """let column = i % p.out_w;
let row = (i / p.out_w) % p.out_h;
let channel = (i / (p.out_w * p.out_h)) % p.channels;
let r = i / (p.out_w * p.out_h * p.channels);
let scale = bitcast<f32>(p.scale);
let shift = bitcast<f32>(p.shift);
let x1 = load_rois(4u * r) * scale - shift;
let y1 = load_rois(4u * r + 1u) * scale - shift;
var width = load_rois(4u * r + 2u) * scale - shift - x1;
var height = load_rois(4u * r + 3u) * scale - shift - y1;
if (p.at_least_1 == 1u) { width = max(width, 1.0); height = max(height, 1.0); }
let bin_h = height / f32(p.out_h);
let bin_w = width / f32(p.out_w);
let count_y = select(u32(max(ceil(bin_h), 0.0)), p.ratio, p.ratio > 0u);
let count_x = select(u32(max(ceil(bin_w), 0.0)), p.ratio, p.ratio > 0u);
if (count_y == 0u || count_x == 0u) { return 0.0; }
let step_y = bin_h / f32(count_y);
let step_x = bin_w / f32(count_x);
let first_y = y1 + f32(row) * bin_h + 0.5 * step_y;
let first_x = x1 + f32(column) * bin_w + 0.5 * step_x;
let rows = inside(first_y, step_y, count_y, p.height);
let columns = inside(first_x, step_x, count_x, p.width);
let image = (index_images(r, p.batch) * p.channels + channel) * p.height * p.width;
var sum = 0.0;
var top = bitcast<f32>(p.lowest);
if (rows.y < count_y || columns.y < count_x) { top = 0.0; }
for (var a = rows.x; a < rows.x + rows.y; a++) {
  let y = tap(first_y + f32(a) * step_y, p.height);
  for (var c = columns.x; c < columns.x + columns.y; c++) {
    let x = tap(first_x + f32(c) * step_x, p.width);
    let q = vec4<f32>(
      load_x(image + y.low * p.width + x.low) * (1.0 - y.rest) * (1.0 - x.rest),
      load_x(image + y.low * p.width + x.high) * (1.0 - y.rest) * x.rest,
      load_x(image + y.high * p.width + x.low) * y.rest * (1.0 - x.rest),
      load_x(image + y.high * p.width + x.high) * y.rest * x.rest);
    sum += q.x + q.y + q.z + q.w;
    top = max(top, max(max(q.x, q.y), max(q.z, q.w)));
  }
}
"""

_TAP = """struct Tap { low: u32, high: u32, rest: f32 }
fn tap(place: f32, size: u32) -> Tap {
  let at = max(place, 0.0);
  let low = min(u32(at), size - 1u);
  return Tap(low, min(low + 1u, size - 1u), select(at - f32(low), 0.0, u32(at) >= size - 1u));
}"""


def _align_shape(n: Node) -> list[Info]:
    x, rois = n.input(0), n.input(1)
    size = (int(n.attr("output_height")), int(n.attr("output_width")))
    return [(x.dtype, (rois.known_shape[0], x.known_shape[1], *size))]


def _check_loops(n: Node, b: Builder, height: Dim, width: Dim, bins: int) -> None:
    """A bin's samples are at most 2 apart from the elements of its share of the image."""
    most = MAX_ITERATIONS // 4 * bins
    area = D.mul(height, width)
    if isinstance(area, int) and area > most:
        raise UnsupportedOp(f"regions of images of {area} elements in {bins} bins")
    b.check(D.le(area, most), f"{n.op_type}: images of more than {most} elements")


@op("RoiAlign", since=10, shape=_align_shape, inputs="N C H W, R 4, R")
def roi_align(n: Node, b: Builder) -> None:
    x, rois, images, out = n.input(0), n.input(1), n.input(2), n.output()
    require([x, rois], *T.FLOATS)
    require([images], T.I64, T.I32)
    mode = str(n.attr("mode")).lower()
    if mode not in ("avg", "max"):
        raise InvalidModel(f"mode {mode!r}")
    batch, channels, height, width = x.known_shape
    out_h, out_w = (int(str(d)) for d in out.known_shape[2:])
    _check_loops(n, b, height, width, out_h * out_w)
    half = n.attr("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    params: dict[str, Dim | float] = {
        "batch": batch, "channels": channels, "height": height, "width": width, "out_h": out_h, "out_w": out_w,
        "scale": float(n.attr("spatial_scale")), "shift": 0.5 if half else 0.0, "at_least_1": int(not half),
        "ratio": max(int(n.attr("sampling_ratio")), 0), "lowest": float("-inf"),
    }  # fmt: skip
    finish = "return sum / f32(count_y * count_x);" if mode == "avg" else "return top;"
    b.map(
        out, _ALIGN + finish, reads={"x": x, "rois": rois, "images": images}, params=params,
        fns=[*index_fns("images", images), _FIRST_AND_LAST, _TAP], name="roi_align",
    )  # fmt: skip


_POOL = """let column = i % p.out_w;
let row = (i / p.out_w) % p.out_h;
let channel = (i / (p.out_w * p.out_h)) % p.channels;
let r = 5u * (i / (p.out_w * p.out_h * p.channels));
let x = bin(load_rois(r + 1u), load_rois(r + 3u), column, p.out_w, p.width);
let y = bin(load_rois(r + 2u), load_rois(r + 4u), row, p.out_h, p.height);
let image = (index_rois(r, p.batch) * p.channels + channel) * p.height * p.width;
if (x.y <= x.x || y.y <= y.x) { return 0.0; }
var top = bitcast<f32>(p.lowest);
for (var a = y.x; a < y.y; a++) {
  for (var c = x.x; c < x.y; c++) { top = max_nan(top, load_x(image + a * p.width + c)); }
}
return top;"""

_BIN = """// First element and the one behind the last of a bin.
fn bin(from_place: f32, to_place: f32, place: u32, bins: u32, size: u32) -> vec2<u32> {
  let first = floor(from_place * bitcast<f32>(p.scale) + 0.5);
  let last = floor(to_place * bitcast<f32>(p.scale) + 0.5);
  let step = max(last - first + 1.0, 1.0) / f32(bins);
  let ends = vec2<f32>(floor(f32(place) * step), ceil(f32(place + 1u) * step)) + first;
  return vec2<u32>(clamp(ends, vec2<f32>(), vec2<f32>(f32(size))));
}"""


def _pool_shape(n: Node) -> list[Info]:
    x, rois = n.input(0), n.input(1)
    return [(x.dtype, (rois.known_shape[0], x.known_shape[1], *(int(s) for s in n.attr("pooled_shape"))))]


@op("MaxRoiPool", shape=_pool_shape, inputs="N C H W, R 5")
def max_roi_pool(n: Node, b: Builder) -> None:
    x, rois, out = n.input(0), n.input(1), n.output()
    require([x, rois], *T.FLOATS)
    batch, channels, height, width = x.known_shape
    out_h, out_w = (int(str(d)) for d in out.known_shape[2:])
    _check_loops(n, b, height, width, out_h * out_w)
    params: dict[str, Dim | float] = {
        "batch": batch, "channels": channels, "height": height, "width": width, "out_h": out_h, "out_w": out_w,
        "scale": float(n.attr("spatial_scale")), "lowest": float("-inf"),
    }  # fmt: skip
    fns = [*index_fns("rois", rois), _BIN]
    b.map(out, _POOL, reads={"x": x, "rois": rois}, params=params, fns=fns, use=("nan",), name="max_roi_pool")
