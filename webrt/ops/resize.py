"""Resize and Upsample: nearest in one kernel of any rank, linear and cubic one axis after another.

Linear, cubic and their antialiased forms are one sum: neighbours k of the place at, weighted by f(|k - at|·shrink),
where shrink is min(scale, 1) with antialias and 1 without; outside of the tensor its edge stands in, or nothing
(exclude_outside).
"""

from __future__ import annotations

from dataclasses import replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_ITERATIONS, Builder, Info, op, require, strides
from webrt.ops.resampling import NEAREST, QUOTIENT, Axis, axes_of, coordinate_mode, given, place_fn
from webrt.ops.view import RAW, bits_of, channels_to_first, channels_to_last, coordinates, element_type, unit, unit_type

# The weight of a neighbour at distance d, and how far neighbours reach.
_FILTERS: dict[str, tuple[str, int]] = {
    "linear": ("fn weight(d: f32) -> f32 { return max(1.0 - d, 0.0); }", 1),
    "cubic": (
        """fn weight(d: f32) -> f32 {
  let a = bitcast<f32>(p.a);
  let far = select(0.0, ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a, d < 2.0);
  return select(far, ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0, d <= 1.0);
}""",
        2,
    ),
}


def _resize_shape(n: Node) -> list[Info]:
    return [(n.input(0).dtype, tuple(a.out for a in axes_of(n)))]


@op("Resize", since=10, shape=_resize_shape)
@op("Upsample", since=7, until=9, shape=_resize_shape)
def resize(n: Node, b: Builder) -> None:
    x, mode = n.input(0), str(n.attr("mode", "nearest"))
    axes, places = _axes(n), coordinate_mode(n)
    roi = n.input(1) if places == "tf_crop_and_resize" and given(n, 1) else None
    if places == "tf_crop_and_resize" and roi is None:
        raise InvalidModel("tf_crop_and_resize without a region of interest")
    element_type(x)
    if roi is not None:
        require([roi], T.F32, T.F16)
    active = [k for k, a in enumerate(axes) if not a.identity(places)]
    if not active:
        b.alias(n.output(), x)
    elif mode == "nearest":
        _nearest(n, b, axes, active, places, roi)
    elif mode in ("linear", "bilinear", "cubic"):
        require([x], T.F32, T.F16, T.BF16)
        _by_axis(n, b, axes, active, places, roi, "cubic" if mode == "cubic" else "linear")
    else:
        raise UnsupportedOp(f"mode {mode!r}")


def _axes(n: Node) -> list[Axis]:
    """The axes in the order in which x has them."""
    if not n.channels_last:
        return axes_of(n)
    x = n.input(0)
    seen = Value(x.name, x.dtype, channels_to_first(x.known_shape))
    return list(channels_to_last(axes_of(replace(n, inputs=[seen, *n.inputs[1:]]))))


def _nearest(n: Node, b: Builder, axes: list[Axis], active: list[int], places: str, roi: Value | None) -> None:
    x, extrapolates = n.input(0), places == "tf_crop_and_resize"
    rounding = str(n.attr("nearest_mode", "simple"))
    if rounding not in NEAREST:
        raise UnsupportedOp(f"nearest_mode {rounding!r}")
    if extrapolates:
        require([x], T.F32, T.F16, T.BF16)
    parts = _collapsed(axes, active)
    kind, vec = (element_type(x), 1) if extrapolates else (RAW[bits_of(x)], 1)
    if not extrapolates and not parts[-1][1]:
        many = unit(bits_of(x), [parts[-1][0].size])
        kind, vec = unit_type(bits_of(x) * many)
        size = D.floordiv(parts[-1][0].size, many)
        parts[-1] = (Axis(size, size, 1.0, parts[-1][0].roi), False)
    text, params = coordinates([a.out for a, _ in parts])
    fns, lines = [QUOTIENT], ["var from_at = 0u;"]
    for k, ((axis, moved), step) in enumerate(zip(parts, strides([a.size for a, _ in parts]))):
        params[f"s{k}"] = step
        if not moved:
            lines.append(f"from_at += c{k} * p.s{k};")
            continue
        fn, more = place_fn(axis, places, str(k))
        fns.append(fn)
        params |= more
        outside = f"if (at < 0.0 || at > f32(p.size{k}) - 1.0) {{ return bitcast<f32>(p.extrapolation); }}"
        index = f"clamp(i32({NEAREST[rounding]}), 0, i32(p.size{k}) - 1)"
        lines.append(f"""{{
  let at = place{k}(f32(c{k}));
  let scale = scale{k}();
  {outside if extrapolates else ""}
  from_at += u32({index}) * p.s{k};
}}""")
    if extrapolates:
        params["extrapolation"] = float(n.attr("extrapolation_value", 0.0))
    read = "return x[from_at];" if vec == 4 else "return load_x(from_at);"
    b.map(
        n.output(), text + "\n".join([*lines, read]), reads=_reads(x, roi), params=params, fns=fns,
        as_type={} if extrapolates else {"x": kind, "out": kind}, vec={"x": vec, "out": vec}, name="resize_nearest",
    )  # fmt: skip


def _collapsed(axes: list[Axis], active: list[int]) -> list[tuple[Axis, bool]]:
    """Neighbouring axes that are not resized become one."""
    out: list[tuple[Axis, bool]] = []
    for k, a in enumerate(axes):
        if out and k not in active and not out[-1][1]:
            size = D.mul(out[-1][0].size, a.size)
            out[-1] = (Axis(size, size, 1.0, a.roi), False)
        else:
            out.append((a, k in active))
    return out


def _by_axis(
    n: Node, b: Builder, axes: list[Axis], active: list[int], places: str, roi: Value | None, mode: str
) -> None:
    """One pass per axis, those that shrink first; what lies between passes is f32."""
    order = sorted(active, key=lambda k: _growth(axes[k]))
    current, shape = n.input(0), list(n.input(0).known_shape)
    for k in order:
        shape[k] = axes[k].out
        out = n.output() if k == order[-1] else b.temp(T.F32, shape)
        _pass(n, b, out, current, axes[k], (D.prod(shape[:k]), D.prod(shape[k + 1 :])), places, roi, mode)
        current = out


def _growth(axis: Axis) -> float:
    known = isinstance(axis.size, int) and isinstance(axis.out, int) and axis.size > 0
    return int(axis.out) / int(axis.size) if known else 1.0  # type: ignore[arg-type]


def _pass(
    n: Node, b: Builder, out: Value, x: Value, axis: Axis, around: tuple[Dim, Dim], places: str, roi: Value | None,
    mode: str,
) -> None:  # fmt: skip
    """Resamples one axis; `around` = elements before and after it."""
    weight, reach = _FILTERS[mode]
    antialias, exclude = bool(n.attr("antialias", 0)), bool(n.attr("exclude_outside", 0))
    fn, params = place_fn(axis, places)
    vec = 4 if x.dtype == out.dtype == T.F32 and D.mod(around[1], 4) == 0 else 1
    params["inner"] = D.floordiv(around[1], vec)
    if mode == "cubic":
        params["a"] = float(n.attr("cubic_coeff_a", -0.75))
    kind, read = ("vec4<f32>", "x[from_at]") if vec == 4 else ("f32", "load_x(from_at)")
    outside = ""
    if places == "tf_crop_and_resize":
        params["extrapolation"] = float(n.attr("extrapolation_value", 0.0))
        outside = f"if (at < 0.0 || at > f32(p.size) - 1.0) {{ return {kind}(bitcast<f32>(p.extrapolation)); }}"
    if antialias:
        _bound_taps(b, axis, reach)
    counted = "w != 0.0" + (" && k >= 0 && k < i32(p.size)" if exclude else "")
    from_at = "(line * p.size + u32(clamp(k, 0, i32(p.size) - 1))) * p.inner + j"
    if antialias:
        taps = f"""let shrink = min(scale(), 1.0);
let end = i32(floor(at + {reach}.0 / shrink)) + 1;
for (var k = i32(ceil(at - {reach}.0 / shrink)); k < end; k++) {{
  let w = weight(abs(f32(k) - at) * shrink);
  if ({counted}) {{ let from_at = {from_at}; sum += w * {read}; total += w; }}
}}"""
    else:
        taps = "\n".join(
            f"""{{ let k = i32(floor(at)) + {tap}; let w = weight(abs(f32(k) - at)); let from_at = {from_at};
  let counted = {counted}; sum += select({kind}(), w * {read}, counted); total += select(0.0, w, counted); }}"""
            for tap in range(1 - reach, 1 + reach)
        )
    sampled = f"""fn sampled(line: u32, c: u32, j: u32) -> {kind} {{
let at = place(f32(c));
{outside}
var sum = {kind}();
var total = 0.0;
{taps}
return sum{" / total" if antialias or exclude else ""};
}}"""
    element, fours = _ONE, vec
    if mode == "linear" and not antialias and around[1] == 1 and out.dtype == T.F32 and D.mod(axis.out, 4) == 0:
        element, fours = _FOUR, 4
    b.map(
        out, element, reads=_reads(x, roi), params=params, fns=[QUOTIENT, fn, weight, sampled],
        vec={"x": vec, "out": fours}, name=f"resize_{mode}",
    )  # fmt: skip


_ONE = """let t = i / p.inner;
let line = t / p.m;
return sampled(line, t - line * p.m, i - t * p.inner);"""
_FOUR = """let t = 4u * i;
let line = t / p.m;
let c = t - line * p.m;
let left = vec2<f32>(sampled(line, c, 0u), sampled(line, c + 1u, 0u));
return vec4<f32>(left, sampled(line, c + 2u, 0u), sampled(line, c + 3u, 0u));"""


def _bound_taps(b: Builder, axis: Axis, reach: int) -> None:
    """One output element of a shrinking axis sums so many neighbours: kernels may not loop for ever."""
    ratio = 1 / axis.scale if axis.scale is not None else 1.0
    taps = D.ceildiv(D.mul(axis.size, 2 * reach), axis.out) if axis.scale is None else int(2 * reach * ratio)
    if isinstance(taps, int) and taps > MAX_ITERATIONS - 4:
        raise UnsupportedOp(f"antialias over {taps} elements")
    b.check(D.lt(taps, MAX_ITERATIONS - 4), f"Resize: antialias over {taps} elements at once")


def _reads(x: Value, roi: Value | None) -> dict[str, Value]:
    return {"x": x} if roi is None else {"x": x, "roi": roi}
