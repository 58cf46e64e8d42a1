"""Function bodies of com.microsoft's operators: what they compute, in operators of ONNX.

Each entry writes a body in ONNX's text format for one node; `inline_functions` puts it in the node's place. None means
that the body cannot be written (a rank is not known yet); the node then stays as it is.
Source: ONNX Runtime's ContribOperators.md; tested against its CPU provider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import onnx
import onnx.parser

from webrt.errors import InvalidModel
from webrt.ir import Node
from webrt.schemas import MS_DOMAIN

OPSET = 21
Lines: TypeAlias = list[str] | None

_CONV = ("auto_pad: string", "dilations: ints", "group: int", "kernel_shape: ints", "pads: ints", "strides: ints")
_POOL = ("auto_pad: string", "ceil_mode: int", "kernel_shape: ints", "pads: ints", "strides: ints")
_LSTM = (
    "activation_alpha: floats", "activation_beta: floats", "activations: strings", "clip: float", "direction: string",
    "hidden_size: int", "input_forget: int",
)  # fmt: skip


def body_of(node: Node) -> onnx.FunctionProto | None:
    """The function body of a node, or None."""
    write = BODIES.get(node.op_type) if node.domain == MS_DOMAIN else None
    lines = write(node) if write is not None else None
    if lines is None:
        return None
    schema = node.schema
    inputs = _names(schema.inputs, len(node.inputs))
    outputs = _names(schema.outputs, len(node.outputs))
    text = (
        f'<domain: "{MS_DOMAIN}", opset_import: ["": {OPSET}]> body ({inputs}) => ({outputs}) {{ {" ".join(lines)} }}'
    )
    return onnx.parser.parse_function(text)


def _names(formal: Sequence[onnx.defs.OpSchema.FormalParameter], count: int) -> str:
    """The formal names; a variadic parameter is numbered from where it starts."""
    names = [p.name for p in formal]
    if formal and formal[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
        start = len(formal) - 1
        names[start:] = [f"{names[start]}{i}" for i in range(max(count - start, 0))]
    return ", ".join(names[:count])


def _given(*attributes: str) -> str:
    """Attributes of the caller, handed on under their names where it has them."""
    return ", ".join(f"{name}: {kind} = @{name}" for name, kind in (a.split(": ") for a in attributes))


def _floats(**values: float) -> str:
    return ", ".join(f"{k}: float = {float(v)!r}" for k, v in values.items())


def _activation(n: Node, x: str, y: str) -> list[str]:
    """y = the activation that a fused node names, of x."""
    name, p = str(n.attr("activation") or ""), list(n.attr("activation_params") or ())
    alpha = float(p[0] if p else n.attr("activation_alpha") or 0.0)
    beta = float(p[1] if len(p) > 1 else n.attr("activation_beta") or 0.0)
    if name in ("", "Relu", "Tanh", "Sigmoid"):
        return [f"{y} = {name or 'Identity'} ({x})"]
    if name == "LeakyRelu":
        return [f"{y} = LeakyRelu <{_floats(alpha=alpha)}> ({x})"]
    if name == "HardSigmoid":
        return [f"{y} = HardSigmoid <{_floats(alpha=alpha, beta=beta)}> ({x})"]
    if name == "HardSwish":
        return [f"gate = HardSigmoid <{_floats(alpha=alpha, beta=beta)}> ({x})", f"{y} = Mul ({x}, gate)"]
    if name == "Clip":
        bounds = [f"{k} = Constant <value_float = {v!r}> () {k}_ = CastLike ({k}, {x})" for k, v in
                  (("least", alpha), ("most", beta))]  # fmt: skip
        return [*bounds, f"{y} = Clip ({x}, least_, most_)"]
    raise InvalidModel(f"the activation {name!r} is not one that fused nodes know")


def _rank(n: Node, index: int = 0) -> int | None:
    return n.input(index).rank if n.input(index).shape is not None else None


def _turned(x: str, y: str, rank: int, *, first: bool) -> str:
    """y = x with its channels first, or last."""
    perm = [0, rank - 1, *range(1, rank - 1)] if first else [0, *range(2, rank), 1]
    return f"{y} = Transpose <perm = {perm}> ({x})"


def _bias_add(n: Node) -> Lines:
    return ["sum = Add (X, bias)", "Y = Add (sum, skip)"]


def _bias_split_gelu(n: Node) -> Lines:
    lines = ["sum = Add (X, bias)", "left, right = Split <axis = -1, num_outputs = 2> (sum)"]
    return [*lines, "gate = Gelu (right)", "Y = Mul (left, gate)"]


def _bias_softmax(n: Node) -> Lines:
    rank, own = _rank(n), _rank(n, 1)
    if rank is None or own is None:
        return None
    axes = [] if n.attr("is_inner_broadcast") or own == rank else list(range(1, 1 + rank - own))
    spread = [f"axes = Constant <value_ints = {axes}> ()", "wide = Unsqueeze (bias, axes)"]
    lines = spread if axes else ["wide = Identity (bias)"]
    flat = ["sum = Add (data, wide)", f"rows = Flatten <axis = {int(n.attr('axis'))}> (sum)"]
    return [*lines, *flat, *_softmax_rows("rows", "sum", "output")]


def _softmax_rows(rows: str, like: str, y: str) -> list[str]:
    return [
        f"shares = Softmax <axis = -1> ({rows})", f"shape = Shape ({like})", f"{y} = Reshape (shares, shape)"
    ]  # fmt: skip


def _fused_gemm(n: Node) -> Lines:
    operands = "A, B, C" if n.has(2) else "A, B"
    attributes = _given("alpha: float", "beta: float", "transA: int", "transB: int")
    return [f"sum = Gemm <{attributes}> ({operands})", *_activation(n, "sum", "Y")]


def _fused_conv(n: Node) -> Lines:
    operands = "X, W, B" if n.has(2) else "X, W"
    lines = [f"conv = Conv <{_given(*_CONV)}> ({operands})"]
    return [*lines, "sum = Add (conv, Z)" if n.has(3) else "sum = Identity (conv)", *_activation(n, "sum", "Y")]


def _nhwc_conv(n: Node) -> Lines:
    rank = _rank(n)
    if rank is None:
        return None
    lines = [_turned("X", "x", rank, first=True)]
    lines.append(f"conv = Conv <{_given(*_CONV)}> ({'x, W, B' if n.has(2) else 'x, W'})")
    lines += [_turned("Z", "z", rank, first=True), "sum = Add (conv, z)"] if n.has(3) else ["sum = Identity (conv)"]
    lines += _activation(n, "sum", "y") if n.op_type == "NhwcFusedConv" else ["y = Identity (sum)"]
    return [*lines, _turned("y", "Y", rank, first=False)]


def _nhwc_max_pool(n: Node) -> Lines:
    rank = _rank(n)
    if rank is None:
        return None
    pool = f"pooled = MaxPool <{_given(*_POOL, 'dilations: ints')}> (first)"
    return [_turned("x", "first", rank, first=True), pool, _turned("pooled", "y", rank, first=False)]


def _group_norm(n: Node, x: str = "X") -> Lines:
    rank = _rank(n)
    if rank is None:
        return None
    last = bool(n.attr("channels_last"))
    lines = [_turned(x, "x", rank, first=True) if last else f"x = Identity ({x})"]
    lines += ["scale = CastLike (gamma, X)", "shift = CastLike (beta, X)"]
    groups = f"num_groups = {int(n.attr('groups'))}, {_given('epsilon: float')}"
    lines.append(f"normal = GroupNormalization <{groups}> (x, scale, shift)")
    lines += (
        ["gate = Sigmoid (normal)", "y = Mul (normal, gate)"] if n.attr("activation") else ["y = Identity (normal)"]
    )
    return [*lines, _turned("y", "Y", rank, first=False) if last else "Y = Identity (y)"]


def _skip_group_norm(n: Node) -> Lines:
    rank, own = _rank(n), _rank(n, 3)
    if rank is None or own is None:
        return None
    lines = ["extra = Identity (skip)"]
    if own != rank:
        lines = [
            f"axes = Constant <value_ints = {list(range(1, 1 + rank - own))}> ()",
            "extra = Unsqueeze (skip, axes)",
        ]
    lines.append("summed = Add (X, extra)")
    lines.append("total = Add (summed, bias)" if n.has(4) else "total = Identity (summed)")
    tail = _group_norm(n, "total")
    return None if tail is None else [*lines, *tail, *(["S = Identity (total)"] if n.wants(1) else [])]


def _embed(n: Node) -> Lines:
    lines = ["words = Gather (word_embedding, input_ids)"]
    if n.has(8):
        lines.append("places = Gather (position_embedding, position_ids)")
    else:
        lines += [
            "count = Shape <start = 1, end = 2> (input_ids)", "zero = Constant <value_ints = [0]> ()",
            "places = Slice (position_embedding, zero, count, zero)",
        ]  # fmt: skip
    lines.append("placed = Add (words, places)")
    if n.has(1) and n.has(4):
        lines += ["kinds = Gather (segment_embedding, segment_ids)", "total = Add (placed, kinds)"]
    else:
        lines.append("total = Identity (placed)")
    lines.append(f"output = LayerNormalization <axis = -1, {_given('epsilon: float')}> (total, gamma, beta)")
    if n.wants(1) and n.has(7):
        lines += [
            "nothing = Constant <value = int32 {0}> ()", "out = Equal (mask, nothing)", "in = Not (out)",
            "ones = Cast <to = 6> (in)", "one = Constant <value_ints = [1]> ()",
            "mask_index = ReduceSum <keepdims = 0> (ones, one)",
        ]  # fmt: skip
    elif n.wants(1):
        lines += [
            "batch = Shape <start = 0, end = 1> (input_ids)",
            "mask_index = ConstantOfShape <value = int32[1] {0}> (batch)",
        ]  # fmt: skip
    return [*lines, *(["embedding_sum = Identity (total)"] if n.wants(2) else [])]


def _real(x: str, scale: str, zero: str, y: str) -> str:
    """y = the quantised x as float32."""
    return f"{y} = DequantizeLinear ({x}, {scale}{f', {zero}' if zero else ''})"


def _formal(n: Node, index: int) -> str:
    """The formal name of an input that the node has; empty where it is absent."""
    return str(n.schema.inputs[index].name) if n.has(index) else ""


def _stored(n: Node, x: str, scale: int, zero: int, y: str) -> str:
    """y = x quantised by inputs of these indices; without a zero point in the type of the first input."""
    point, like = _formal(n, zero), n.input(0).dtype
    kind = "" if point or like is None else f"<output_dtype = {like.code}> "
    return f"{y} = QuantizeLinear {kind}({x}, {_formal(n, scale)}{f', {point}' if point else ''})"


def _binary(operator: str) -> Callable[[Node], Lines]:
    def write(n: Node) -> Lines:
        lines = [_real("A", "A_scale", _formal(n, 2), "a"), _real("B", "B_scale", _formal(n, 5), "b")]
        return [*lines, f"c = {operator} (a, b)", _stored(n, "c", 6, 7, "C")]

    return write


def _unary(text: Callable[[Node], Lines]) -> Callable[[Node], Lines]:
    """A body whose `text` makes y of x, within the quantised X and Y."""

    def write(n: Node) -> Lines:
        inner = text(n)
        if inner is None:
            return None
        return [_real("X", _formal(n, 1), _formal(n, 2), "x"), *inner, _stored(n, "y", 3, 4, "Y")]

    return write


def _pooled(operator: str) -> Callable[[Node], Lines]:
    def write(n: Node) -> Lines:
        rank = _rank(n)
        if not n.attr("channels_last"):
            return [f"y = {operator} (x)"]
        if rank is None:
            return None
        return [_turned("x", "first", rank, first=True), f"pooled = {operator} (first)",
                _turned("pooled", "y", rank, first=False)]  # fmt: skip

    return write


def _softmax(n: Node) -> Lines:
    axis = int(n.attr("axis"))
    if int(n.attr("opset")) >= 13:
        return [f"y = Softmax <axis = {axis}> (x)"]
    return [f"rows = Flatten <axis = {axis}> (x)", *_softmax_rows("rows", "x", "y")]


def _concat(n: Node) -> Lines:
    parts = len(n.inputs[2:]) // 3
    lines = [_real(f"inputs{3 * i}", f"inputs{3 * i + 1}", f"inputs{3 * i + 2}", f"x{i}") for i in range(parts)]
    joined = ", ".join(f"x{i}" for i in range(parts))
    lines.append(f"y = Concat <axis = {int(n.attr('axis'))}> ({joined})")
    return [*lines, "Y = QuantizeLinear (y, Y_scale, Y_zero_point)"]


def _qlinear_conv(n: Node) -> Lines:
    rank = _rank(n)
    if rank is None:
        return None
    operands = "x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point" + (", B" if n.has(8) else "")
    call = f"QLinearConv <{_given(*_CONV)}>"
    if not n.attr("channels_last"):
        return [f"y = {call} (x, {operands})"]
    return [_turned("x", "first", rank, first=True), f"made = {call} (first, {operands})",
            _turned("made", "y", rank, first=False)]  # fmt: skip


def _qgemm(n: Node) -> Lines:
    lines = [
        f"{m} = {'Transpose <perm = [1, 0]>' if n.attr(f'trans{m.upper()}') else 'Identity'} ({m.upper()})"
        for m in "ab"
    ]
    lines.append("exact = MatMulInteger (a, b, a_zero_point, b_zero_point)")
    lines.append("sum = Add (exact, C)" if n.has(6) else "sum = Identity (exact)")
    lines += [
        "wide = Cast <to = 1> (sum)", f"alpha = Constant <value_float = {float(n.attr('alpha'))!r}> ()",
        "scaled = Mul (alpha, a_scale)", "scale = Mul (scaled, b_scale)", "y = Mul (wide, scale)",
    ]  # fmt: skip
    stored = "Y = QuantizeLinear (y, y_scale, y_zero_point)" if n.has(7) and n.has(8) else "Y = Identity (y)"
    return [*lines, stored]


def _scaled_product(n: Node, operands: str, scales: tuple[str, str], bias: bool) -> list[str]:
    """Y = the product of 8-bit matrices times their scales, computed in float32."""
    a, b = scales
    lines = [f"exact = MatMulInteger ({operands})", "wide = Cast <to = 1> (exact)"]
    lines += [f"first = Cast <to = 1> ({a})", f"second = Cast <to = 1> ({b})", "scale = Mul (first, second)"]
    lines += ["product = Mul (wide, scale)"]
    lines += ["more = Cast <to = 1> (bias)", "y = Add (product, more)"] if bias else ["y = Identity (product)"]
    return [*lines, f"Y = CastLike (y, {a})"]


def _integer_to_float(n: Node) -> Lines:
    zeros = f", {_formal(n, 4)}, {_formal(n, 5)}".rstrip(", ")
    if n.has(5) and not n.has(4):
        zeros = ', "", b_zero_point'
    return _scaled_product(n, f"A, B{zeros}", ("a_scale", "b_scale"), n.has(6))


def _dynamic_matmul(n: Node) -> Lines:
    operands = "quantized, B, zero" + (", b_zero_point" if n.has(3) else "")
    lines = _scaled_product(n, operands, ("scale_a", "b_scale"), n.has(4))
    return ["quantized, scale_a, zero = DynamicQuantizeLinear (A)", *lines]


def _dynamic_lstm(n: Node) -> Lines:
    lines = []
    for m, scale, zero in (("W", 8, 9), ("R", 10, 11)):
        ranks = [_rank(n, scale), _rank(n, zero)]
        if None in ranks:
            return None
        for k, (name, rank) in enumerate(zip((f"{m}_scale", f"{m}_zero_point"), ranks)):
            axes = [1] if rank == 2 else [1, 2]
            lines += [f"{m}{k}_axes = Constant <value_ints = {axes}> ()", f"{m}{k} = Unsqueeze ({name}, {m}{k}_axes)"]
        lines += [
            f"{m}_real = Cast <to = 1> ({m})", f"{m}_off = Cast <to = 1> ({m}1)", f"{m}_from = Sub ({m}_real, {m}_off)",
            f"{m}_wide = Mul ({m}_from, {m}0)", f"{m}_turned = Transpose <perm = [0, 2, 1]> ({m}_wide)",
        ]  # fmt: skip
    made = ", ".join(p.name for p in n.schema.outputs[: len(n.outputs)])
    operands = "X, W_turned, R_turned, B, sequence_lens, initial_h, initial_c, P"
    return [*lines, f"{made} = LSTM <{_given(*_LSTM)}> ({operands})"]


def _finite(n: Node) -> Lines:
    lines, count = [], len(n.inputs)
    for i in range(count):
        kinds = [k for k, other in (("IsNaN", "isinf_only"), ("IsInf", "isnan_only")) if not n.attr(other)]
        lines += [f"{k}{i} = {k} (input{i})" for k in kinds]
        lines.append(f"odd{i} = Or ({kinds[0]}{i}, {kinds[-1]}{i})" if kinds else f"odd{i} = IsNaN (input{i})")
        lines += [f"number{i} = Cast <to = 6> (odd{i})", f"found{i} = ReduceSum <keepdims = 0> (number{i})"]
    total = f"total = Max ({', '.join(f'found{i}' for i in range(count))})"
    return [*lines, total, "any = Cast <to = 9> (total)", "output = Not (any)"]


def _same(text: str) -> Callable[[Node], Lines]:
    return lambda n: [text.replace(", k)", ")") if not n.has(1) else text]


BODIES: dict[str, Callable[[Node], Lines]] = {
    "BiasAdd": _bias_add, "BiasSplitGelu": _bias_split_gelu, "BiasSoftmax": _bias_softmax,
    "FusedGemm": _fused_gemm, "FusedConv": _fused_conv, "NhwcConv": _nhwc_conv, "NhwcFusedConv": _nhwc_conv,
    "NhwcMaxPool": _nhwc_max_pool, "GroupNorm": _group_norm, "SkipGroupNorm": _skip_group_norm,
    "EmbedLayerNormalization": _embed, "QLinearAdd": _binary("Add"), "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary(lambda n: ["y = Sigmoid (x)"]),
    "QLinearLeakyRelu": _unary(lambda n: [f"y = LeakyRelu <{_given('alpha: float')}> (x)"]),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearAveragePool": _unary(_pooled(f"AveragePool <{_given(*_POOL, 'count_include_pad: int')}>")),
    "QLinearGlobalAveragePool": _unary(_pooled("GlobalAveragePool")),
    "QLinearConcat": _concat, "QLinearConv": _qlinear_conv, "QGemm": _qgemm,
    "MatMulIntegerToFloat": _integer_to_float, "DynamicQuantizeMatMul": _dynamic_matmul,
    "DynamicQuantizeLSTM": _dynamic_lstm, "IsAllFinite": _finite,
    "Trilu": _same("Y = Trilu <upper: int = @upper> (X, k)"),
    "ExpandDims": lambda n: ["wide = Cast <to = 7> (axis)", "Y = Unsqueeze (X, wide)"],
    "GatherND": lambda n: ["wide = Cast <to = 7> (indices)", "output = GatherND (data, wide)"],
    "Pad": lambda n: [f"output = Pad <mode: string = @mode> (data, pads{', value' if n.has(2) else ''})"],
}  # fmt: skip
"""What writes an operator's body."""
