"""Layer-, RMS-, Instance-, Group- and MeanVarianceNormalization, and ONNX Runtime's fused forms of the first two.

Sources: the ONNX operator texts; ONNX Runtime's ContribOperators.md for com.microsoft and for
SimplifiedLayerNormalization, which it also accepts in the default domain.
"""

from __future__ import annotations

from collections.abc import Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import Builder, Info, normalize_axis, op, require, same_as_first
from webrt.ops.rows import Rows
from webrt.ops.standardize import Affine, skip_rows, standardize

MS = "com.microsoft"


def _axes(n: Node) -> range:
    rank = n.input(0).rank
    return range(normalize_axis(n.attr("axis", -1), rank), rank)


def _statistics(n: Node) -> Info:
    """Type and shape of Mean and InvStdDev."""
    shape, axes = n.input(0).known_shape, _axes(n)
    return dtype_of(n.attr("stash_type", 1)), tuple(1 if k in axes else d for k, d in enumerate(shape))


def _norm_shape(n: Node) -> list[Info]:
    x = n.input(0)
    first = n.input(1).dtype if n.op_type != "LayerNormalization" else x.dtype
    return [(first, x.known_shape), *[_statistics(n)] * (len(n.outputs) - 1)]


def _broadcast(b: Builder, x: Value, small: Value | None, name: str) -> Affine | None:
    """`small` as it broadcasts to x; a size that is not 1 has to equal x's."""
    if small is None:
        return None
    require([small], *T.FLOATS)
    shape, part = x.known_shape, small.known_shape
    if len(part) > len(shape):
        raise ShapeError(f"{name} has rank {len(part)}, the input {len(shape)}")
    for have, want in zip(reversed(part), reversed(shape)):
        if have != 1:
            b.check(D.eq(have, want), f"{name} of size {have} does not broadcast to {want}")
    return Affine(small, Rows.broadcast(shape, part))


def _optional(n: Node, index: int) -> Value | None:
    return n.input(index) if n.has(index) else None


def _output(n: Node, index: int) -> Value | None:
    return n.output(index) if n.wants(index) else None


@op("LayerNormalization", shape=_norm_shape)
def layer_normalization(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], *T.FLOATS)
    require([_output(n, 1), _output(n, 2)], T.F32, T.BF16)
    standardize(
        b, n.output(), x, Rows.of(x.known_shape, _axes(n)), epsilon=n.attr("epsilon"),
        scale=_broadcast(b, x, n.input(1), "Scale"), bias=_broadcast(b, x, _optional(n, 2), "B"),
        mean=_output(n, 1), inverse=_output(n, 2), name="layer_norm",
    )  # fmt: skip


@op("SimplifiedLayerNormalization", shape=_norm_shape, domain=MS)
@op("SimplifiedLayerNormalization", "RMSNormalization", shape=_norm_shape)
def rms_normalization(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], *T.FLOATS)
    require([_output(n, 1)], T.F32, T.BF16)
    standardize(
        b, n.output(), x, Rows.of(x.known_shape, _axes(n)), epsilon=n.attr("epsilon"), centred=False,
        scale=_broadcast(b, x, n.input(1), "scale"), inverse=_output(n, 1), name="rms_norm",
    )  # fmt: skip


def _skip_shape(n: Node) -> list[Info]:
    x = n.input(0)
    per_row: Info = (T.F32, (*x.known_shape[:-1], 1))
    return [(x.dtype, x.known_shape), per_row, per_row, (x.dtype, x.known_shape)][: len(n.outputs)]


@op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", shape=_skip_shape, domain=MS)
def skip_normalization(n: Node, b: Builder) -> None:
    x, centred = n.input(0), n.op_type == "SkipLayerNormalization"
    require([x, n.input(1)], *T.FLOATS)
    total, shift = _output(n, 3) or b.temp(T.F32, x.known_shape), _optional(n, 4 if centred else 3)
    rows = Rows.of(x.known_shape, [x.rank - 1])
    scale = _broadcast(b, x, n.input(2), "gamma")
    bias = _broadcast(b, x, _optional(n, 3), "beta") if centred else None
    mean, inverse = _output(n, 1) if centred else None, _output(n, 2)
    affine = {k: v for k, v in (("scale", scale), ("bias", bias)) if v is not None}
    summands = {"x": x, "skip": n.input(1)} | ({"shift": shift} if shift is not None else {})
    epsilon = n.attr("epsilon")
    if mean is None and inverse is None and skip_rows(
        b, n.output(), total, summands, rows, epsilon=epsilon, centred=centred, affine=affine, name="skip_norm"
    ):  # fmt: skip
        return
    _add_skip(b, total, n, shift)
    standardize(
        b, n.output(), total, rows, epsilon=epsilon, centred=centred, scale=scale, bias=bias, mean=mean,
        inverse=inverse, name="skip_norm",
    )  # fmt: skip


def _add_skip(b: Builder, total: Value, n: Node, bias: Value | None) -> None:
    """total = input + skip + bias."""
    reads, params, fns, text = {"x": n.input(0)}, dict[str, Dim | float](), [], "load_x(i)"
    for key, value in (("skip", n.input(1)), ("bias", bias)):
        part = _broadcast(b, n.input(0), value, key)
        if part is not None:
            reads[key] = part.value
            params |= part.at.sizes(f"{key}_d")
            fns.append(part.at.index(f"{key}_at", f"{key}_d"))
            text += f" + load_{key}({key}_at(i))"
    b.map(total, f"return {text};", reads=reads, params=params, fns=fns, name="skip_add")


def _per_channel(n: Node, index: int, shape: Sequence[Dim]) -> Affine:
    """Input `index`, one element per place of axis 1 of `shape`."""
    require([n.input(index)], *T.FLOATS)
    return Affine(n.input(index), Rows.of(shape, [k for k in range(len(shape)) if k != 1]))


@op("InstanceNormalization", shape=same_as_first, inputs="N C *, C, C")
def instance_normalization(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], *T.FLOATS)
    shape = x.known_shape
    standardize(
        b, n.output(), x, Rows.of(shape, range(2, len(shape))), epsilon=n.attr("epsilon"),
        scale=_per_channel(n, 1, shape), bias=_per_channel(n, 2, shape), name="instance_norm",
    )  # fmt: skip


def _group_inputs(n: Node) -> str:
    """Scale and bias are per group below opset 21, then per channel."""
    return "N C *, C, C" if n.opset >= 21 else f"N C *, {int(n.attr('num_groups'))}, {int(n.attr('num_groups'))}"


@op("GroupNormalization", shape=same_as_first, inputs=_group_inputs)
def group_normalization(n: Node, b: Builder) -> None:
    x, groups = n.input(0), int(n.attr("num_groups"))
    require([x], *T.FLOATS)
    batch, channels, *rest = x.known_shape
    b.check(D.eq(D.mod(channels, groups), 0), "num_groups does not divide the number of channels")
    spatial = D.prod(rest)
    grouped = (batch, groups, D.mul(D.floordiv(channels, groups), spatial))
    per = (batch, channels, spatial) if n.opset >= 21 else grouped
    standardize(
        b, n.output(), x, Rows.of(grouped, [2]), epsilon=n.attr("epsilon"),
        scale=_per_channel(n, 1, per), bias=_per_channel(n, 2, per), name="group_norm",
    )  # fmt: skip


@op("MeanVarianceNormalization", shape=same_as_first)
def mean_variance_normalization(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], *T.FLOATS)
    axes = [normalize_axis(a, x.rank) for a in n.attr("axes")]
    finish = "1.0 / (sqrt(a / f32(p.length)) + bitcast<f32>(p.epsilon))"
    standardize(b, n.output(), x, Rows.of(x.known_shape, axes), epsilon=1e-9, finish=finish, name="mvn")
