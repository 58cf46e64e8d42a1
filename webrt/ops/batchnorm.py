"""BatchNormalization, LpNormalization and LRN. Source: the ONNX operator texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import NotConstant, ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, normalize_axis, op, require, same_as_first
from webrt.ops.reduce import row_sums
from webrt.ops.rows import Rows


def _batch_shape(n: Node) -> list[Info]:
    x, mean = n.input(0), n.input(3)
    return [(x.dtype, x.shape), *[(mean.dtype, mean.shape)] * (len(n.outputs) - 1)]


def _batch_inputs(n: Node) -> str:
    """A lone axis is the batch, then there is one channel; opsets below 9 may have statistics per element."""
    return "N C *, C, C, C, C" if n.input(0).rank > 1 and n.attr("spatial", 1) else ""


@op("BatchNormalization", shape=_batch_shape, since=7, inputs=_batch_inputs)
def batch_normalization(n: Node, b: Builder) -> None:
    x = n.input(0)
    require(n.given(), *T.FLOATS)
    rows = Rows.of(x.known_shape, [k for k in range(x.rank) if k != 1] if n.attr("spatial", 1) else [0])
    if n.attr("training_mode", 0):
        scale, shift = _trained(n, b, rows)
    elif any(n.wants(k) for k in range(1, len(n.outputs))):
        raise UnsupportedOp("BatchNormalization with the statistics of training as outputs, below opset 14")
    else:
        scale, shift = _folded(n, b) or _scale_and_shift(n, b, n.input(3), n.input(4))
    b.map(
        n.output(),
        "let c = channel(i);\nreturn load_x(i) * load_scale(c) + load_shift(c);",
        reads={"x": x, "scale": scale, "shift": shift}, params=rows.sizes(), fns=[rows.index("channel")],
        name="batch_norm",
    )  # fmt: skip


def _folded(n: Node, b: Builder) -> tuple[Value, Value] | None:
    """scale / √(var + ε) and B - mean · that as constants, where the inputs are constants."""
    try:
        scale, bias, mean, var = (n.const(k).astype(np.float64) for k in range(1, 5))
    except NotConstant:
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + float(n.attr("epsilon")))
        shift = bias - mean * factor
        return b.constant(factor.astype(np.float32)), b.constant(shift.astype(np.float32))


def _scale_and_shift(n: Node, b: Builder, mean: Value, var: Value) -> tuple[Value, Value]:
    """The same, computed at the run."""
    shape = n.input(1).known_shape
    scale, shift = b.temp(T.F32, shape), b.temp(T.F32, shape)
    b.map(
        scale, "return load_s(i) / sqrt(load_v(i) + bitcast<f32>(p.epsilon));",
        reads={"s": n.input(1), "v": var}, params={"epsilon": float(n.attr("epsilon"))}, name="batch_norm_scale",
    )  # fmt: skip
    b.map(
        shift, "return load_b(i) - load_m(i) * load_s(i);",
        reads={"s": scale, "b": n.input(2), "m": mean}, name="batch_norm_shift",
    )  # fmt: skip
    return scale, shift


def _trained(n: Node, b: Builder, rows: Rows) -> tuple[Value, Value]:
    """Scale and shift from the batch's own statistics; the running ones move towards them by 1 - momentum."""
    x = n.input(0)
    mean = row_sums(b, x, rows, "v", "a / f32(p.length)", name="row_mean")
    var = row_sums(b, x, rows, "(v - c) * (v - c)", "a / f32(p.length)", context=mean, name="row_variance")
    for k, now in ((1, mean), (2, var)):
        if n.wants(k):
            b.map(
                n.output(k), "let m = bitcast<f32>(p.momentum);\nreturn load_old(i) * m + load_now(i) * (1.0 - m);",
                reads={"old": n.input(2 + k), "now": now}, params={"momentum": float(n.attr("momentum"))},
                name="batch_norm_running",
            )  # fmt: skip
    return _scale_and_shift(n, b, mean, var)


@op("LpNormalization", shape=same_as_first)
def lp_normalization(n: Node, b: Builder) -> None:
    x, order = n.input(0), n.attr("p")
    require([x], *T.FLOATS)
    if order not in (1, 2):
        raise UnsupportedOp(f"LpNormalization with p = {order}")
    rows = Rows.of(x.known_shape, [normalize_axis(n.attr("axis"), x.rank)])
    norm = row_sums(b, x, rows, "abs(v)" if order == 1 else "v * v", "a" if order == 1 else "sqrt(a)", name="row_norm")
    b.map(
        n.output(),
        "let d = load_norm(row_of(i));\nreturn select(load_x(i) / d, 0.0, d == 0.0);",
        reads={"x": x, "norm": norm}, params=rows.sizes(), fns=[rows.index("row_of")], name="lp_norm",
    )  # fmt: skip


@op("LRN", shape=same_as_first)
def lrn(n: Node, b: Builder) -> None:
    """x / (bias + alpha / size · Σ x²)^beta, the sum over `size` channels around x's own."""
    x, size = n.input(0), int(n.attr("size"))
    require([x], *T.FLOATS)
    channels, inner = _channels(x.known_shape)
    params: dict[str, Dim | float] = {
        "channels": channels, "inner": inner, "before": (size - 1) // 2, "after": size - 1 - (size - 1) // 2,
        "alpha": float(n.attr("alpha")) / size, "beta": -float(n.attr("beta")), "bias": float(n.attr("bias")),
    }  # fmt: skip
    b.map(n.output(), _LRN, reads={"x": x}, params=params, name="lrn")


def _channels(shape: Sequence[Dim]) -> tuple[Dim, Dim]:
    """Size of axis 1, and how many elements apart its places are."""
    if len(shape) < 2:
        raise ShapeError("LRN needs an axis of channels")
    return shape[1], D.prod(shape[2:])


_LRN = """let c = (i / p.inner) % p.channels;
let begin = c - min(c, p.before);
let end = min(c + p.after + 1u, p.channels);
var sum = 0.0;
for (var k = begin; k < end; k += 1u) {
  let v = load_x(i - (c - k) * p.inner);
  sum += v * v;
}
let base = bitcast<f32>(p.bias) + bitcast<f32>(p.alpha) * sum;
return load_x(i) * pow(base, bitcast<f32>(p.beta));"""
