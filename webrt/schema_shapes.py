"""Type and shape inference of the operators in `schemas.py`, in the form that onnx calls back.

An inference never raises: what does not fit stays unknown, and the operator itself reports it when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnx import TensorProto, TensorShapeProto, TypeProto

Dimension = TensorShapeProto.Dimension
Dims = list[Dimension]
Inference = Callable[[Any], None]
Rule = Callable[["Context"], None]


class Context:
    """onnx's InferenceContext with the few questions that the rules ask."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def elem(self, i: int) -> int:
        """Element type of input i, 0 where it is absent or unknown."""
        known = i < self.raw.get_num_inputs() and self.raw.has_input(i)
        return int(self.raw.get_input_type(i).tensor_type.elem_type) if known else 0

    def dims(self, i: int) -> Dims | None:
        """Dimensions of input i, None where the rank is unknown."""
        if not self.elem(i) or not self.raw.get_input_type(i).tensor_type.HasField("shape"):
            return None
        return list(self.raw.get_input_type(i).tensor_type.shape.dim)

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        found = self.raw.get_attribute(name)
        return int(found.i) if found is not None else default

    def ints(self, name: str) -> list[int]:
        """A list attribute, empty where it is absent."""
        found = self.raw.get_attribute(name)
        return list(found.ints) if found is not None else []

    def text(self, name: str) -> str:
        """A string attribute, empty where it is absent."""
        found = self.raw.get_attribute(name)
        return str(found.s.decode()) if found is not None else ""

    def set(self, i: int, elem: int, dims: Sequence[Dimension] | None) -> None:
        """Declares output i where the node has it."""
        if not elem or i >= self.raw.get_num_outputs():
            return
        result = TypeProto()
        result.tensor_type.elem_type = elem
        if dims is not None:
            result.tensor_type.shape.dim.extend(dims)
        self.raw.set_output_type(i, result)


def dim(value: int | None = None) -> Dimension:
    """A known dimension, or an unknown one."""
    return Dimension(dim_value=value) if value is not None else Dimension()


def times(d: Dimension, factor: int) -> Dimension:
    """A dimension times a number, unknown where the dimension is."""
    return dim(d.dim_value * factor) if d.HasField("dim_value") else dim()


def broadcast(a: Dims | None, b: Dims | None) -> Dims | None:
    """numpy's broadcast of two shapes; a named dim beside 1 stays named."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    a, b = [dim(1)] * (rank - len(a)) + a, [dim(1)] * (rank - len(b)) + b
    return [_broadcast_dim(x, y) for x, y in zip(a, b)]


def _broadcast_dim(a: Dimension, b: Dimension) -> Dimension:
    if a == b or (b.HasField("dim_value") and b.dim_value == 1):
        return a
    if a.HasField("dim_value") and a.dim_value == 1:
        return b
    known = [d for d in (a, b) if d.HasField("dim_value")]
    return known[0] if known else dim()


def _same(c: Context) -> None:
    c.set(0, c.elem(0), c.dims(0))


def _same_all(c: Context) -> None:
    for i in range(c.raw.get_num_outputs()):
        c.set(i, c.elem(0), c.dims(0))


def _type(c: Context) -> None:
    for i in range(c.raw.get_num_outputs()):
        c.set(i, c.elem(0), None)


def _type_1(c: Context) -> None:
    c.set(0, c.elem(1), None)


def _half_last(c: Context) -> None:
    dims = c.dims(0)
    if dims:
        last = dims[-1]
        dims = [*dims[:-1], dim(last.dim_value // 2) if last.HasField("dim_value") else dim()]
    c.set(0, c.elem(0), dims)


def _reduced(dims: Dims | None, axis: int) -> Dims | None:
    if dims is None:
        return None
    axis = axis + len(dims) if axis < 0 else axis
    return dims[:axis] + [dim(1)] * (len(dims) - axis)


def _norm(c: Context) -> None:
    stats = _reduced(c.dims(0), c.integer("axis", -1))
    stash = TensorProto.DOUBLE if c.elem(0) == TensorProto.DOUBLE else TensorProto.FLOAT
    c.set(0, c.elem(1) or c.elem(0), c.dims(0))
    for i in range(1, c.raw.get_num_outputs()):
        c.set(i, stash, stats)


def _skip_norm(c: Context) -> None:
    c.set(0, c.elem(0), c.dims(0))
    for i in (1, 2):
        c.set(i, TensorProto.FLOAT, _reduced(c.dims(0), -1))
    c.set(3, c.elem(0), c.dims(0))


def _matmul_dims(c: Context) -> Dims | None:
    a, b = c.dims(0), c.dims(1)
    if not a or not b or len(a) < 2 or len(b) < 2:
        return None
    if c.integer("transBatchA"):
        a = [*a[1:-1], a[0], a[-1]]
    if c.integer("transBatchB"):
        b = [*b[1:-1], b[0], b[-1]]
    rows = a[-1] if c.integer("transA") else a[-2]
    columns = b[-2] if c.integer("transB") else b[-1]
    batch = broadcast(a[:-2], b[:-2])
    return None if batch is None else [*batch, rows, columns]


def _matmul(c: Context) -> None:
    c.set(0, c.elem(0), _matmul_dims(c))


def _matmul_scaled(c: Context) -> None:
    c.set(0, c.elem(2), _matmul_dims(c))


def _qgemm(c: Context) -> None:
    c.set(0, c.elem(8) or TensorProto.FLOAT, _matmul_dims(c))


def _matmul_nbits(c: Context) -> None:
    a = c.dims(0)
    c.set(0, c.elem(0), [*a[:-1], dim(c.integer("N"))] if a else None)


def _gather_block(c: Context) -> None:
    data, indices = c.dims(0), c.dims(1)
    dims = None
    if data is not None and indices is not None:
        axis = c.integer("gather_axis") % len(data)
        if c.elem(0) == TensorProto.UINT8:
            data = [*data[:-1], times(data[-1], 8 // c.integer("bits", 4))]
        dims = [*data[:axis], *indices, *data[axis + 1 :]]
    c.set(0, c.elem(2), dims)


def _gqa(c: Context) -> None:
    query, past = c.dims(0), c.dims(3)
    heads, kv = c.integer("num_heads", 1), c.integer("kv_num_heads", 1)
    packed = not c.elem(1)
    output = query
    if query and packed:
        last = query[-1]
        known = last.HasField("dim_value")
        output = [*query[:-1], dim(last.dim_value // (heads + 2 * kv) * heads) if known else dim()]
    c.set(0, c.elem(0), output)
    if past is not None and len(past) == 4:
        past = [past[0], past[1], dim(), past[3]]
    for i in (1, 2):
        c.set(i, c.elem(3) or c.elem(0), past)


def _mha(c: Context) -> None:
    query, value = c.dims(0), c.dims(2)
    output = None
    if query is not None and len(query) == 3 and value is not None:
        output = [*query[:2], value[-1] if len(value) == 3 else times(value[-1], c.integer("num_heads", 1))]
    c.set(0, c.elem(0), output)
    for i in (1, 2):
        c.set(i, c.elem(0), None)


def _embed(c: Context) -> None:
    ids, table = c.dims(0), c.dims(2)
    dims = [*ids, table[-1]] if ids and table else None
    c.set(0, c.elem(2), dims)
    c.set(1, TensorProto.INT32, [ids[0]] if ids else None)
    c.set(2, c.elem(2), dims)


def _broadcast_0_3(c: Context) -> None:
    c.set(0, c.elem(0), broadcast(c.dims(0), c.dims(3)))


def _quantize(c: Context) -> None:
    c.set(0, c.elem(2) or TensorProto.UINT8, c.dims(0))


def _dequantize(c: Context) -> None:
    c.set(0, c.elem(1), c.dims(0))


def _scalar_bool(c: Context) -> None:
    c.set(0, TensorProto.BOOL, [])


def _window(c: Context, i: int, size: Dimension, kernel: Dimension, rank: int) -> Dimension:
    """Output size of a convolution along one spatial axis."""
    stride = (c.ints("strides") or [1] * rank)[i]
    if c.text("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
        return dim(-(-size.dim_value // stride)) if size.HasField("dim_value") else dim()
    if not (size.HasField("dim_value") and kernel.HasField("dim_value")):
        return dim()
    pads = c.ints("pads") or [0] * (2 * rank)
    reach = (kernel.dim_value - 1) * (c.ints("dilations") or [1] * rank)[i] + 1
    return dim((size.dim_value + pads[i] + pads[i + rank] - reach) // stride + 1)


def _conv(c: Context) -> None:
    x, w = c.dims(0), c.dims(1)
    dims = None
    if x and w and len(x) == len(w):
        rank = len(x) - 2
        dims = [x[0], w[0], *(_window(c, i, x[2 + i], w[2 + i], rank) for i in range(rank))]
    c.set(0, c.elem(0), dims)


def _nhwc_conv(c: Context) -> None:
    x, w = c.dims(0), c.dims(1)
    dims = None
    if x and w and len(x) == len(w):
        rank = len(x) - 2
        dims = [x[0], *(_window(c, i, x[1 + i], w[2 + i], rank) for i in range(rank)), w[0]]
    c.set(0, c.elem(0), dims)


def _guarded(rule: Rule) -> Inference:
    def infer(raw: Any) -> None:
        try:
            rule(Context(raw))
        except Exception:  # a malformed node: onnx would abort the inference of the whole model
            return

    return infer


INFERENCE: dict[str, Inference] = {
    name: _guarded(rule)
    for name, rule in {
        "same": _same, "same_all": _same_all, "type": _type, "type_1": _type_1, "half_last": _half_last, "norm": _norm,
        "skip_norm": _skip_norm, "matmul": _matmul, "matmul_scaled": _matmul_scaled, "qgemm": _qgemm,
        "matmul_nbits": _matmul_nbits, "gather_block": _gather_block, "gqa": _gqa, "mha": _mha, "embed": _embed,
        "broadcast_0_3": _broadcast_0_3, "quantize": _quantize, "dequantize": _dequantize,
        "scalar_bool": _scalar_bool, "conv": _conv, "nhwc_conv": _nhwc_conv,
    }.items()
}  # fmt: skip
