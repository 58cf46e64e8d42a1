"""From an output coordinate to the place that Resize samples, and the weights of its neighbours.

Sources: the ONNX text of Resize and onnx/reference/ops/op_resize.py; where opset 10 and Upsample are silent (nearest),
onnxruntime's upsamplebase.h: floor when growing, ceil when shrinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node
from webrt.lowering import normalize_axis

# `c` is the output coordinate, `n` and `m` the axis's input and output size, `first` and `last` the region of interest.
PLACES: dict[str, str] = {
    "half_pixel": "return quotient(c + 0.5, scale) - 0.5;",
    "half_pixel_symmetric": "return n * 0.5 * (1.0 - m / (scale * n)) + quotient(c + 0.5, scale) - 0.5;",
    "pytorch_half_pixel": "return select(0.0, quotient(c + 0.5, scale) - 0.5, m > 1.0);",
    "align_corners": "return select(0.0, quotient(c * (n - 1.0), max(m - 1.0, 1.0)), m > 1.0);",
    "asymmetric": "return quotient(c, scale);",
    "tf_half_pixel_for_nn": "return quotient(c + 0.5, scale);",
    "tf_crop_and_resize": """if (m > 1.0) {
    return first * (n - 1.0) + quotient(c * (last - first) * (n - 1.0), m - 1.0);
  }
  return 0.5 * (first + last) * (n - 1.0);""",
}

NEAREST: dict[str, str] = {
    "round_prefer_floor": "ceil(at - 0.5)",
    "round_prefer_ceil": "floor(at + 0.5)",
    "floor": "floor(at)",
    "ceil": "ceil(at)",
    "simple": "select(floor(at), ceil(at), scale < 1.0)",
}

QUOTIENT = """// a / b; WGSL lets it be off by 2.5 ULP, which must not move a whole number past a rounding.
fn quotient(a: f32, b: f32) -> f32 {
  let q = a / b;
  let r = round(q);
  return select(q, r, r * b == a);
}"""


@dataclass(frozen=True)
class Axis:
    """One axis of a Resize. `scale` is None where it is the quotient of the sizes, or, where the aspect ratio is kept,
    the smallest ("min") or largest ("max") quotient of the (wanted, size) pairs of `fit`; `roi` = where its region's
    ends are in the roi input."""

    size: Dim
    out: Dim
    scale: float | None
    roi: tuple[int, int] = (-1, -1)
    fit: tuple[str, tuple[tuple[Dim, Dim], ...]] | None = None

    def identity(self, coordinates: str) -> bool:
        """Whether every element is sampled where it is."""
        kept = self.size == self.out and self.scale in (None, 1.0) and self.fit is None
        return kept and coordinates not in ("tf_crop_and_resize", "tf_half_pixel_for_nn")


def coordinate_mode(n: Node) -> str:
    """coordinate_transformation_mode; before opset 11 and for Upsample it is asymmetric."""
    mode = str(n.attr("coordinate_transformation_mode", "asymmetric"))
    if mode not in PLACES:
        raise UnsupportedOp(f"coordinate_transformation_mode {mode!r}")
    return mode


def given(n: Node, index: int) -> bool:
    """Whether an input holds anything: exporters write absent ones as empty tensors."""
    return n.has(index) and n.input(index).static_shape != (0,)


def axes_of(n: Node) -> list[Axis]:
    """Every axis of the input. Raises NotConstant where scales or sizes are not known before the run."""
    shape = n.input(0).known_shape
    listed = n.attr("axes")
    chosen = list(range(len(shape))) if listed is None else [normalize_axis(a, len(shape)) for a in listed]
    scales, sizes = _scales(n), list(n.dims(3)) if n.opset >= 11 and given(n, 3) else None
    if (scales is None) == (sizes is None):
        raise InvalidModel(f"{'neither' if sizes is None else 'both'} scales and sizes are given, where one is needed")
    if len(set(chosen)) != len(chosen):
        raise InvalidModel(f"axes {list(listed)} name one axis twice")
    count = len(scales if sizes is None else sizes)  # type: ignore[arg-type]
    if count != len(chosen):
        raise InvalidModel(f"{count} scales or sizes are given for {len(chosen)} axes")
    if n.op_type == "Resize" and n.opset >= 11 and given(n, 1) and D.eq(n.input(1).elements, 2 * count) == 0:
        raise ShapeError(f"the region of interest has {n.input(1).elements} numbers, {2 * count} are needed")
    out = [Axis(d, d, 1.0) for d in shape]
    for k, a in enumerate(chosen):
        if sizes is None:
            scale = scales[k] if scales is not None else 1.0
            out[a] = Axis(shape[a], D.scale_f32(shape[a], scale), scale, (k, k + count))
        else:
            out[a] = Axis(shape[a], sizes[k], None, (k, k + count))
    return out if sizes is None else _with_policy(str(n.attr("keep_aspect_ratio_policy", "stretch")), out, chosen)


def _scales(n: Node) -> list[float] | None:
    attribute = n.attr("scales")
    if attribute is not None:
        scales = [float(s) for s in attribute]
    else:
        index = 2 if n.op_type == "Resize" and n.opset >= 11 else 1
        if not given(n, index):
            return None
        scales = [float(s) for s in n.const(index).flat]
    least = 1.0 if n.op_type == "Upsample" else 0.0
    if not all(s > 0 and s >= least for s in scales):
        raise ShapeError(f"scales {scales} are not all {'at least 1' if least else 'positive'}")
    return scales


def _with_policy(policy: str, axes: list[Axis], chosen: Sequence[int]) -> list[Axis]:
    """The axes with sizes that keep the aspect ratio: round(scale · size) of the one scale that fits."""
    if policy == "stretch":
        return axes
    if policy not in ("not_larger", "not_smaller"):
        raise UnsupportedOp(f"keep_aspect_ratio_policy {policy!r}")
    choose = D.minimum if policy == "not_larger" else D.maximum
    pairs = tuple((axes[a].out, axes[a].size) for a in chosen)
    fitted = list(axes)
    for a in chosen:
        rounded = [D.floordiv(D.add(D.mul(D.mul(w, axes[a].size), 2), d), D.mul(d, 2)) for w, d in pairs]
        fit = ("min" if policy == "not_larger" else "max", pairs)
        fitted[a] = replace(axes[a], out=reduce(choose, rounded), fit=fit)
    return fitted


def place_fn(axis: Axis, coordinates: str, suffix: str = "") -> tuple[str, dict[str, Dim | float]]:
    """`fn place<suffix>(c: f32) -> f32` and `fn scale<suffix>() -> f32`, with their parameters."""
    params: dict[str, Dim | float] = {f"size{suffix}": axis.size, f"m{suffix}": axis.out}
    scale, m = f"f32(p.m{suffix}) / f32(p.size{suffix})", f"f32(p.m{suffix})"
    if axis.scale is not None:
        params[f"scale{suffix}"] = axis.scale
        scale = f"bitcast<f32>(p.scale{suffix})"
    elif axis.fit is not None:
        for k, (wanted, size) in enumerate(axis.fit[1]):
            params |= {f"want{k}_{suffix}": wanted, f"have{k}_{suffix}": size}
        quotients = [f"f32(p.want{k}_{suffix}) / f32(p.have{k}_{suffix})" for k in range(len(axis.fit[1]))]
        scale = reduce(lambda x, y: f"{axis.fit[0] if axis.fit else ''}({x}, {y})", quotients)
    if axis.scale is not None and coordinates in ("align_corners", "tf_crop_and_resize"):
        m = "scale * n"  # the output's size before it is rounded down, as onnx's reference has it
    region = ""
    if coordinates == "tf_crop_and_resize":
        first, last = (f"load_roi({k}u)" for k in axis.roi) if axis.roi[0] >= 0 else ("0.0", "1.0")
        region = f"  let first = {first};\n  let last = {last};\n"
    text = f"""fn scale{suffix}() -> f32 {{ return {scale}; }}
fn place{suffix}(c: f32) -> f32 {{
  let scale = scale{suffix}();
  let n = f32(p.size{suffix});
  let m = {m};
{region}  {PLACES[coordinates]}
}}"""
    return text, params
