"""com.microsoft's operators on quantised tensors in operators of ONNX."""

from __future__ import annotations

from webrt.compiler.body_text import CONV, POOL, Lines, Writer, formal, given, rank_of, softmax_rows, turned
from webrt.ir import Node

_LSTM = (
    "activation_alpha: floats", "activation_beta: floats", "activations: strings", "clip: float", "direction: string",
    "hidden_size: int", "input_forget: int",
)  # fmt: skip


def _real(x: str, scale: str, zero: str, y: str) -> str:
    """y = the quantised x as float32."""
    return f"{y} = DequantizeLinear ({x}, {scale}{f', {zero}' if zero else ''})"


def _stored(n: Node, x: str, scale: int, zero: int, y: str) -> str:
    """y = x quantised by inputs of these indices; without a zero point in the type of the first input."""
    point, like = formal(n, zero), n.input(0).dtype
    kind = "" if point or like is None else f"<output_dtype = {like.code}> "
    return f"{y} = QuantizeLinear {kind}({x}, {formal(n, scale)}{f', {point}' if point else ''})"


def _binary(operator: str) -> Writer:
    def write(n: Node) -> Lines:
        lines = [_real("A", "A_scale", formal(n, 2), "a"), _real("B", "B_scale", formal(n, 5), "b")]
        return [*lines, f"c = {operator} (a, b)", _stored(n, "c", 6, 7, "C")]

    return write


def _unary(text: Writer) -> Writer:
    """A body whose `text` makes y of x, within the quantised X and Y."""

    def write(n: Node) -> Lines:
        inner = text(n)
        if inner is None:
            return None
        return [_real("X", formal(n, 1), formal(n, 2), "x"), *inner, _stored(n, "y", 3, 4, "Y")]

    return write


def _average(n: Node) -> Lines:
    """The zero point is added before rounding, as onnxruntime does: ties go to the even code."""
    pooled, like = _pooled(f"AveragePool <{given(*POOL, 'count_include_pad: int')}>")(n), n.input(0).dtype
    if pooled is None or like is None:
        return None
    lines = [_real("X", formal(n, 1), formal(n, 2), "x"), *pooled]
    lines.append(f"codes = Div (y, {formal(n, 3)})")
    if point := formal(n, 4):
        lines += [f"point = Cast <to = 1> ({point})", "placed = Add (codes, point)"]
    else:
        lines.append("placed = Identity (codes)")
    one = "one = Constant <value_float = 1.0> ()"
    return [*lines, one, f"Y = QuantizeLinear <output_dtype = {like.code}> (placed, one)"]


def _pooled(operator: str) -> Writer:
    def write(n: Node) -> Lines:
        rank = rank_of(n)
        if not n.attr("channels_last"):
            return [f"y = {operator} (x)"]
        if rank is None:
            return None
        return [turned("x", "first", rank, first=True), f"pooled = {operator} (first)",
                turned("pooled", "y", rank, first=False)]  # fmt: skip

    return write


def _softmax(n: Node) -> Lines:
    axis = int(n.attr("axis"))
    if int(n.attr("opset")) >= 13:
        return [f"y = Softmax <axis = {axis}> (x)"]
    return [f"rows = Flatten <axis = {axis}> (x)", *softmax_rows("rows", "x", "y")]


def _concat(n: Node) -> Lines:
    parts = len(n.inputs[2:]) // 3
    lines = [_real(f"inputs{3 * i}", f"inputs{3 * i + 1}", f"inputs{3 * i + 2}", f"x{i}") for i in range(parts)]
    joined = ", ".join(f"x{i}" for i in range(parts))
    lines.append(f"y = Concat <axis = {int(n.attr('axis'))}> ({joined})")
    return [*lines, "Y = QuantizeLinear (y, Y_scale, Y_zero_point)"]


def _qlinear_conv(n: Node) -> Lines:
    rank = rank_of(n)
    if rank is None:
        return None
    operands = "x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point" + (", B" if n.has(8) else "")
    call = f"QLinearConv <{given(*CONV)}>"
    if not n.attr("channels_last"):
        return [f"y = {call} (x, {operands})"]
    return [turned("x", "first", rank, first=True), f"made = {call} (first, {operands})",
            turned("made", "y", rank, first=False)]  # fmt: skip


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
    zeros = f", {formal(n, 4)}, {formal(n, 5)}".rstrip(", ")
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
        ranks = [rank_of(n, scale), rank_of(n, zero)]
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
    return [*lines, f"{made} = LSTM <{given(*_LSTM)}> ({operands})"]


QUANTIZED: dict[str, Writer] = {
    "QLinearAdd": _binary("Add"), "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary(lambda n: ["y = Sigmoid (x)"]),
    "QLinearLeakyRelu": _unary(lambda n: [f"y = LeakyRelu <{given('alpha: float')}> (x)"]),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearAveragePool": _average,
    "QLinearGlobalAveragePool": _unary(_pooled("GlobalAveragePool")),
    "QLinearConcat": _concat, "QLinearConv": _qlinear_conv, "QGemm": _qgemm,
    "MatMulIntegerToFloat": _integer_to_float, "DynamicQuantizeMatMul": _dynamic_matmul,
    "DynamicQuantizeLSTM": _dynamic_lstm,
}  # fmt: skip
