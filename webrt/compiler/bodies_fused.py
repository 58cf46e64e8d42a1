"""com.microsoft's fused activations, convolutions, normalisations and moves in operators of ONNX."""

from __future__ import annotations

from webrt.compiler.body_text import CONV, POOL, Lines, Writer, floats, given, rank_of, softmax_rows, turned
from webrt.errors import InvalidModel
from webrt.ir import Node


def _activation(n: Node, x: str, y: str) -> list[str]:
    """y = the activation that a fused node names, of x."""
    name, p = str(n.attr("activation") or ""), list(n.attr("activation_params") or ())
    alpha = float(p[0] if p else n.attr("activation_alpha") or 0.0)
    beta = float(p[1] if len(p) > 1 else n.attr("activation_beta") or 0.0)
    if name in ("", "Relu", "Tanh", "Sigmoid"):
        return [f"{y} = {name or 'Identity'} ({x})"]
    if name == "LeakyRelu":
        return [f"{y} = LeakyRelu <{floats(alpha=alpha)}> ({x})"]
    if name == "HardSigmoid":
        return [f"{y} = HardSigmoid <{floats(alpha=alpha, beta=beta)}> ({x})"]
    if name == "HardSwish":
        return [f"gate = HardSigmoid <{floats(alpha=alpha, beta=beta)}> ({x})", f"{y} = Mul ({x}, gate)"]
    if name == "Clip":
        bounds = [f"{k} = Constant <value_float = {v!r}> () {k}_ = CastLike ({k}, {x})" for k, v in
                  (("least", alpha), ("most", beta))]  # fmt: skip
        return [*bounds, f"{y} = Clip ({x}, least_, most_)"]
    raise InvalidModel(f"the activation {name!r} is not one that fused nodes know")


def _bias_add(n: Node) -> Lines:
    return ["sum = Add (X, bias)", "Y = Add (sum, skip)"]


def _bias_split_gelu(n: Node) -> Lines:
    lines = ["sum = Add (X, bias)", "left, right = Split <axis = -1, num_outputs = 2> (sum)"]
    return [*lines, "gate = Gelu (right)", "Y = Mul (left, gate)"]


def _bias_softmax(n: Node) -> Lines:
    rank, own = rank_of(n), rank_of(n, 1)
    if rank is None or own is None:
        return None
    axes = [] if n.attr("is_inner_broadcast") or own == rank else list(range(1, 1 + rank - own))
    spread = [f"axes = Constant <value_ints = {axes}> ()", "wide = Unsqueeze (bias, axes)"]
    lines = spread if axes else ["wide = Identity (bias)"]
    flat = ["sum = Add (data, wide)", f"rows = Flatten <axis = {int(n.attr('axis'))}> (sum)"]
    return [*lines, *flat, *softmax_rows("rows", "sum", "output")]


def _fused_gemm(n: Node) -> Lines:
    operands = "A, B, C" if n.has(2) else "A, B"
    attributes = given("alpha: float", "beta: float", "transA: int", "transB: int")
    return [f"sum = Gemm <{attributes}> ({operands})", *_activation(n, "sum", "Y")]


def _fused_conv(n: Node) -> Lines:
    operands = "X, W, B" if n.has(2) else "X, W"
    lines = [f"conv = Conv <{given(*CONV)}> ({operands})"]
    return [*lines, "sum = Add (conv, Z)" if n.has(3) else "sum = Identity (conv)", *_activation(n, "sum", "Y")]


def _nhwc_conv(n: Node) -> Lines:
    rank = rank_of(n)
    if rank is None:
        return None
    lines = [turned("X", "x", rank, first=True)]
    lines.append(f"conv = Conv <{given(*CONV)}> ({'x, W, B' if n.has(2) else 'x, W'})")
    lines += [turned("Z", "z", rank, first=True), "sum = Add (conv, z)"] if n.has(3) else ["sum = Identity (conv)"]
    lines += _activation(n, "sum", "y") if n.op_type == "NhwcFusedConv" else ["y = Identity (sum)"]
    return [*lines, turned("y", "Y", rank, first=False)]


def _nhwc_max_pool(n: Node) -> Lines:
    rank = rank_of(n)
    if rank is None:
        return None
    pool = f"pooled = MaxPool <{given(*POOL, 'dilations: ints')}> (first)"
    return [turned("x", "first", rank, first=True), pool, turned("pooled", "y", rank, first=False)]


def _group_norm(n: Node, x: str = "X") -> Lines:
    rank = rank_of(n)
    if rank is None:
        return None
    last = bool(n.attr("channels_last"))
    lines = [turned(x, "x", rank, first=True) if last else f"x = Identity ({x})"]
    lines += ["scale = CastLike (gamma, X)", "shift = CastLike (beta, X)"]
    groups = f"num_groups = {int(n.attr('groups'))}, {given('epsilon: float')}"
    lines.append(f"normal = GroupNormalization <{groups}> (x, scale, shift)")
    lines += (
        ["gate = Sigmoid (normal)", "y = Mul (normal, gate)"] if n.attr("activation") else ["y = Identity (normal)"]
    )
    return [*lines, turned("y", "Y", rank, first=False) if last else "Y = Identity (y)"]


def _skip_group_norm(n: Node) -> Lines:
    rank, own = rank_of(n), rank_of(n, 3)
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
    lines.append(f"output = LayerNormalization <axis = -1, {given('epsilon: float')}> (total, gamma, beta)")
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


def _finite(n: Node) -> Lines:
    lines, count = [], len(n.inputs)
    for i in range(count):
        kinds = [k for k, other in (("IsNaN", "isinf_only"), ("IsInf", "isnan_only")) if not n.attr(other)]
        lines += [f"{k}{i} = {k} (input{i})" for k in kinds]
        lines.append(f"odd{i} = Or ({kinds[0]}{i}, {kinds[-1]}{i})" if kinds else f"odd{i} = IsNaN (input{i})")
        lines += [f"number{i} = Cast <to = 6> (odd{i})", f"found{i} = ReduceSum <keepdims = 0> (number{i})"]
    total = f"total = Max ({', '.join(f'found{i}' for i in range(count))})"
    return [*lines, total, "any = Cast <to = 9> (total)", "output = Not (any)"]


FUSED: dict[str, Writer] = {
    "BiasAdd": _bias_add, "BiasSplitGelu": _bias_split_gelu, "BiasSoftmax": _bias_softmax,
    "FusedGemm": _fused_gemm, "FusedConv": _fused_conv, "NhwcConv": _nhwc_conv, "NhwcFusedConv": _nhwc_conv,
    "NhwcMaxPool": _nhwc_max_pool, "GroupNorm": _group_norm, "SkipGroupNorm": _skip_group_norm,
    "EmbedLayerNormalization": _embed, "IsAllFinite": _finite,
    "Trilu": lambda n: [f"Y = Trilu <upper: int = @upper> (X{', k' if n.has(1) else ''})"],
    "ExpandDims": lambda n: ["wide = Cast <to = 7> (axis)", "Y = Unsqueeze (X, wide)"],
    "GatherND": lambda n: ["wide = Cast <to = 7> (indices)", "output = GatherND (data, wide)"],
    "Pad": lambda n: [f"output = Pad <mode: string = @mode> (data, pads{', value' if n.has(2) else ''})"],
}  # fmt: skip
