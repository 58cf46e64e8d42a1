"""GridSample and AffineGrid, for two and three spatial axes.

Sources: the ONNX texts; reflection, borders and rounding as onnxruntime's core/providers/cpu/tensor/grid_sample.cc.
"""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node
from webrt.lowering import Builder, Info, op, require
from webrt.ops.view import coordinates

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_OLD_NAMES = {"bilinear": "linear", "bicubic": "cubic"}

_WEIGHTS = {
    "nearest": "fn weight(k: i32, f: f32) -> f32 { return 1.0; }",
    "linear": "fn weight(k: i32, f: f32) -> f32 { return select(f, 1.0 - f, k == 0); }",
    "cubic": """fn weight(k: i32, f: f32) -> f32 {
  let a = -0.75;
  let d = abs(f32(k - 1) - f);
  if (d <= 1.0) { return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0; }
  return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
}""",
}

_REFLECT = """// x mirrored at low and high until it lies between them.
fn mirrored(x: f32, low: f32, high: f32) -> f32 {
  let range = high - low;
  let d = select(x - high, low - x, x < low);
  if (d <= 0.0 || range <= 0.0) { return clamp(x, low, high); }
  let turns = floor(d / range);
  let rest = d - turns * range;
  let odd = turns - 2.0 * floor(turns * 0.5) > 0.5;
  return select(high - rest, low + rest, (x < low) != odd);
}"""


def _mode(n: Node) -> str:
    mode = str(n.attr("mode"))
    mode = _OLD_NAMES.get(mode, mode)
    if mode not in _TAPS:
        raise UnsupportedOp(f"mode {mode!r}")
    return mode


def _grid_sample_shape(n: Node) -> list[Info]:
    x, grid = n.input(0).known_shape, n.input(1).known_shape
    if len(x) != len(grid) or len(x) < 3 or D.eq(grid[-1], len(x) - 2) == 0:
        raise ShapeError(f"a grid of shape {list(grid)} does not address an input of shape {list(x)}")
    return [(n.input(0).dtype, (*x[:2], *grid[1:-1]))]


def _check_grid(n: Node, b: Builder) -> None:
    last, axes = n.input(1).known_shape[-1], n.input(0).rank - 2
    b.check(D.eq(last, axes), f"the grid has {last} coordinates for {axes} axes")


def _place_fn(mode: str, align: bool) -> str:
    """`fn place(g, size) -> f32`: where along an axis the grid's number g, -1 … 1, points."""
    place = "(g + 1.0) * 0.5 * (n - 1.0)" if align else "((g + 1.0) * n - 1.0) * 0.5"
    rounded = f"round({place})" if mode == "nearest" else place
    return f"""fn place(g: f32, size: u32) -> f32 {{
  let n = f32(size);
  return clamp({rounded}, -1e9, 1e9);
}}"""


def _pixel_fn(padding: str, align: bool) -> str:
    """`fn pixel(i, size) -> i32`: the neighbour i as an index below size, or -1 for a zero."""
    low, high = ("0.0", "f32(size) - 1.0") if align else ("-0.5", "f32(size) - 0.5")
    text = {
        "zeros": "return select(-1, i, i >= 0 && i < i32(size));",
        "border": "return clamp(i, 0, i32(size) - 1);",
        "reflection": f"return clamp(i32(mirrored(f32(i), {low}, {high})), 0, i32(size) - 1);",
    }[padding]
    return f"fn pixel(i: i32, size: u32) -> i32 {{ {text} }}"


@op("GridSample", since=16, shape=_grid_sample_shape)
def grid_sample(n: Node, b: Builder) -> None:
    x, grid, out = n.input(0), n.input(1), n.output()
    _check_grid(n, b)
    mode, padding, align = _mode(n), str(n.attr("padding_mode", "zeros")), bool(n.attr("align_corners", 0))
    if padding not in ("zeros", "border", "reflection"):
        raise UnsupportedOp(f"padding_mode {padding!r}")
    spatial = x.rank - 2
    if spatial > 3:
        raise UnsupportedOp(f"{spatial} spatial axes")
    require([x, grid], T.F32, T.F16, T.BF16)
    batches = x.known_shape[0], grid.known_shape[0]
    b.check(D.eq(*batches), "GridSample: {} batches of input and {} of grids".format(*batches))
    points = D.prod(grid.known_shape[1:-1])
    text, params = coordinates([x.known_shape[0], x.known_shape[1], points])
    params |= {"channels": x.known_shape[1], "points": points}
    params |= {f"n{a}": x.known_shape[2 + a] for a in range(spatial)}
    taps = _TAPS[mode]
    text += f"let g = (c0 * p.points + c2) * {spatial}u;\n"
    for a in range(spatial):
        text += f"let x{a} = place(load_grid(g + {spatial - 1 - a}u), p.n{a});\nlet f{a} = x{a} - floor(x{a});\n"
        text += f"let i{a} = i32(floor(x{a})) - {1 if mode == 'cubic' else 0};\n"
    text += f"var sum = 0.0;\nfor (var t = 0; t < {taps**spatial}; t++) {{\n  var at = c0 * p.channels + c1;\n"
    text += "  var w = 1.0;\n  var inside = true;\n"
    for a in range(spatial):
        digit = f"(t / {taps ** (spatial - 1 - a)}) % {taps}"
        text += f"""  {{
    let k = {digit};
    let q = pixel(i{a} + k, p.n{a});
    w *= weight(k, f{a});
    inside = inside && q >= 0;
    at = at * p.n{a} + u32(max(q, 0));
  }}
"""
    text += "  if (inside && w != 0.0) { sum += w * load_x(at); }\n}\nreturn sum;"
    fns = [_REFLECT, _place_fn(mode, align), _pixel_fn(padding, align), _WEIGHTS[mode]]
    b.map(out, text, reads={"x": x, "grid": grid}, params=params, fns=fns, name=f"grid_sample_{mode}")


def _affine_size(n: Node) -> tuple[Dim, ...]:
    size = n.dims(1)
    if len(size) not in (4, 5):
        raise InvalidModel(f"size {list(size)} has not 4 or 5 numbers")
    return size


def _affine_shape(n: Node) -> list[Info]:
    size = _affine_size(n)
    return [(n.input(0).dtype, (size[0], *size[2:], len(size) - 2))]


def _affine_inputs(n: Node) -> str:
    """theta of 2-D pictures, whose size has 4 numbers, or of 3-D ones."""
    return "N 3 4, 5" if n.input(1).shape == (5,) else "N 2 3, 4"


@op("AffineGrid", since=20, shape=_affine_shape, inputs=_affine_inputs)
def affine_grid(n: Node, b: Builder) -> None:
    """Each point is theta · (x, y[, z], 1) with x, y, z evenly spaced in -1 … 1."""
    theta, out = n.input(0), n.output()
    require([theta], T.F32, T.F16, T.BF16)
    size = _affine_size(n)
    spatial = len(size) - 2
    align = bool(n.attr("align_corners", 0))
    b.check(
        D.eq(theta.known_shape[0], size[0]), f"AffineGrid: {theta.known_shape[0]} batches of theta, {size[0]} of size"
    )
    text, params = coordinates(out.known_shape)
    terms = []
    for a in range(spatial):
        params[f"n{a}"] = size[2 + a]
        even = f"(2.0 * f32(c{a + 1}) + 1.0) / f32(p.n{a}) - 1.0"
        ends = f"select(0.0, 2.0 * f32(c{a + 1}) / f32(max(p.n{a}, 2u) - 1u) - 1.0, p.n{a} > 1u)"
        terms.append(f"load_theta(row + {spatial - 1 - a}u) * ({ends if align else even})")
    text += f"let row = (c0 * {spatial}u + c{spatial + 1}) * {spatial + 1}u;\n"
    text += f"return {' + '.join(reversed(terms))} + load_theta(row + {spatial}u);"
    b.map(out, text, reads={"theta": theta}, params=params, name="affine_grid")
