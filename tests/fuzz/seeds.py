"""What mutations start from: one-node models of every operator with a kernel, small graphs, and models of a folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from tests.conformance import samples as S
from tests.kernels.harness import node_model

_HEAD = '<ir_version: 10, opset_import: ["" : 21{more}]>\n'
_MICROSOFT = ', "com.microsoft" : 1'
_LOCAL = ', "local" : 1'

GRAPHS = {
    "chain": "agraph (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1.0, -2.0, 3.0, 0.5}>"
    " { a = Add(x, w)  b = Relu(a)  c = Mul(b, a)  y = Softmax<axis=-1>(c) }",
    "shapes": "agraph (float[b, s, 8] x, int64[b] k) => (float[p, q] y, int64[1] t) <int64[1] m = {-1},"
    " int64 zero = {0}, int64[1] two = {2}> { h = Shape(x)  g = Gather<axis=0>(h, zero)  u = Unsqueeze(g, zeros)"
    "  zeros = Constant<value_ints=[0]>()"
    "  d = Mul(u, two)  v = Concat<axis=0>(d, m)  y = Reshape(x, v)  t = Size(y)  e = Slice(h, two, two) }",
    "branches": "agraph (float[n] x, bool c) => (float[n] y) { y = If (c) <then_branch = then () => (float[n] p)"
    " { p = Exp(x) }, else_branch = other () => (float[n] q) { r = Neg(x)  q = Abs(r) }> }",
    "loop": "agraph (float[4] x, int64 trips) => (float[4] y, float[k, 4] all) { go = Constant<value = bool {1}>()"
    "  y, all = Loop (trips, go, x) <body = step (int64 i, bool on, float[4] s) => (bool more, float[4] t, float[4] o)"
    " { more = Identity(on)  t = Add(s, x)  o = Neg(t) }> }",
    "unrolled": "agraph (float[4] x) => (float[4] y) { go = Constant<value = bool {1}>()  m = Constant<value_int = 3>()"
    "  y = Loop (m, go, x) <body = step (int64 i, bool on, float[4] s) => (bool more, float[4] t)"
    " { more = Identity(on)  t = Mul(s, s) }> }",
    "scan": "agraph (float[3] s0, float[5, 3] xs) => (float[3] s, float[5, 3] ys) { s, ys = Scan (s0, xs)"
    " <num_scan_inputs = 1, body = step (float[3] a, float[3] b) => (float[3] c, float[3] d)"
    " { c = Add(a, b)  d = Identity(c) }> }",
    "data_sizes": "agraph (float[n] x) => (float[m] y, int64[1, k] nz) { a = Abs(x)  nz = NonZero(a)  u = Unique(a)"
    "  y = Log(u) }",
    "constants": "agraph (float[2, 3] x) => (float[2, 3] y, float[r] z) <float[3] w = {1, 2, 3}, int64[2] n = {2, 3}>"
    " { a = ConstantOfShape<value = float[1] {2.0}>(n)  b = Add(a, w)  c = Exp(b)  y = Sub(x, c)"
    "  s = Constant<value_float = 0.0>()  l = Constant<value_float = 9.0>()  d = Constant<value_float = 1.5>()"
    "  z = Range(s, l, d) }",
    "quantized": "agraph (float[n, 4] x) => (float[n, 2] y) <float s = {0.1}, uint8 z = {128}, float t = {0.2},"
    " int8 o = {0}, int8[4, 2] w = {1, 2, 3, 4, 5, 6, 7, -8}> { q = QuantizeLinear(x, s, z)"
    "  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, t, o)  y = MatMul(a, b) }",
    "strings": "agraph (string[n] x) => (string[n] y, float[n] f) {"
    " u = StringNormalizer<case_change_action=\"UPPER\">(x)  y = Identity(u)  f = Cast<to=1>(x) }",
    "sequences": "agraph (float[4, 2] x) => (float[a, b] y) <int64 i = {1}> { s = SplitToSequence<axis=0>(x)"
    "  t = SequenceAt(s, i)  n = SequenceLength(s)  y = ConcatFromSequence<axis=0>(s) }",
    "resize": "agraph (float[1, 2, h, w] x) => (float[1, 2, p, q] y) <float[4] s = {1.0, 1.0, 2.0, 1.5}>"
    " { r = Resize<mode=\"linear\">(x, , s)  y = MaxPool<kernel_shape=[2, 2], pads=[0, 0, 1, 1]>(r) }",
}  # fmt: skip


def text_model(text: str) -> bytes:
    """A model of ONNX's textual syntax; nodes may stand in any order."""
    more = (_MICROSOFT if "com.microsoft" in text else "") + (_LOCAL if "local." in text else "")
    return bytes(parser.parse_model(_HEAD.replace("{more}", more) + text).SerializeToString())


def _convolutions() -> bytes:
    """x → Conv → BatchNormalization → Clip → GlobalAveragePool → Flatten → Gemm, with weights of few values."""
    shapes = {"w": (4, 3, 3, 3), "g": (4,), "b": (4,), "m": (4,), "v": (4,), "f": (4, 5)}
    weights = [numpy_helper.from_array(np.ones(s, np.float32) / (i + 2), n) for i, (n, s) in enumerate(shapes.items())]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["c"]),
        helper.make_node("Clip", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["h"]),
        helper.make_node("Gemm", ["h", "f"], ["y"], alpha=0.5),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def _with_function() -> bytes:
    """A model that calls a function of its own, twice nested."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    inner = helper.make_function(
        "local", "Scaled", ["a"], ["b"], [helper.make_node("LeakyRelu", ["a"], ["b"])], opsets, ["alpha"]
    )
    inner.node[0].attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    call = helper.make_node("Scaled", ["t"], ["r"], domain="local", alpha=0.3)
    outer = helper.make_function("local", "Twice", ["p"], ["r"], [helper.make_node("Neg", ["p"], ["t"]), call], opsets)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="local")], "g", info[:1], info[1:])
    model = helper.make_model(graph, functions=[outer, inner], opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString())


def _external() -> bytes:
    """A model whose weight lies in the file "weights"."""
    model = onnx.ModelProto.FromString(text_model(GRAPHS["chain"]))
    tensor = model.graph.initializer[0]
    del tensor.float_data[:]
    for key, value in {"location": "weights", "offset": "0", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    tensor.data_location = TensorProto.EXTERNAL
    return bytes(model.SerializeToString())


@lru_cache(maxsize=1)
def models() -> tuple[bytes, ...]:
    """The graphs, eight times each so that they are drawn often, then the operators."""
    graphs = [text_model(t) for t in GRAPHS.values()] + [_convolutions(), _with_function(), _external()]
    return tuple(graphs * 8 + _operators())


def _operators() -> list[bytes]:
    """Each sample twice: with inputs of free sizes, and with all inputs constant, which folds."""
    out = []
    for sample in S.newest_samples():
        model, feeds = node_model(
            sample.op, sample.inputs, sample.attrs, opset=S.newest_opset(sample), domain=sample.domain,
            outputs=sample.outputs, constants=sample.constants, symbolic=sample.symbolic,
        )  # fmt: skip
        out.append(bytes(model.SerializeToString()))
        del model.graph.input[:]
        model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in feeds.items())
        out.append(bytes(model.SerializeToString()))
    return out


def folder(path: Path, largest: int = 4 << 20) -> tuple[bytes, ...]:
    """The models of a folder that are no larger than `largest` bytes."""
    found = sorted(p for p in path.glob("*.onnx") if p.stat().st_size <= largest)
    return tuple(p.read_bytes() for p in found)
