"""Activations: functions of one tensor whose attributes are parameters; PRelu, Clip, Shrink and the contrib Gelus."""

from __future__ import annotations

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Formula, LowerFn, op
from webrt.ops.elementwise import first_shape, fits_into, kind, launch, pick
from webrt.ops.view import element_type
from webrt.schemas import MS_DOMAIN

_ACTIVATION = ("nan", "float", "activation")
_LARGEST = {T.F32: 3.4028234663852886e38, T.F16: 65504.0, T.BF16: 3.3895313892515355e38}
_ZERO = {"f": "0.0", "i": "0i", "u": "0u", "l": "vec2<u32>(0u)", "m": "vec2<u32>(0u)"}
_TANH = ("nan", "float", "hyperbolic")
_GELU = "0.5 * v * (1.0 + f32_erf(v * 0.7071067811865476))"
_GELU_TANH = "0.5 * v * (1.0 + f32_tanh(0.7978845608028654 * v * (1.0 + 0.044715 * v * v)))"

# Operator → (first opset, body over `x` for floats, attributes that it reads, files of shaders/lib/).
ACTIVATIONS: dict[str, tuple[int, str, tuple[str, ...], tuple[str, ...]]] = {
    "Sigmoid": (6, "return f32_sigmoid(x);", (), _ACTIVATION),
    "LeakyRelu": (6, "return select(x, alpha * x, x < 0.0);", ("alpha",), ()),
    "ThresholdedRelu": (10, "return select(0.0, x, x > alpha);", ("alpha",), ()),
    "Elu": (6, "return select(x, alpha * (exp(x) - 1.0), x < 0.0);", ("alpha",), ()),
    "Selu": (6, "return gamma * select(x, alpha * (exp(x) - 1.0), x <= 0.0);", ("alpha", "gamma"), ()),
    "Celu": (12, "return select(x, alpha * (exp(x / alpha) - 1.0), x < 0.0);", ("alpha",), ()),
    "HardSigmoid": (6, "return f32_clip(alpha * x + beta, 0.0, 1.0);", ("alpha", "beta"), _ACTIVATION),
    "HardSwish": (14, "return x * f32_clip(x / 6.0 + 0.5, 0.0, 1.0);", (), _ACTIVATION),
    "Softplus": (1, "return f32_softplus(x);", (), _ACTIVATION),
    "Softsign": (1, "return x / (1.0 + abs(x));", (), ()),
    "Mish": (18, "return x * f32_tanh(f32_softplus(x));", (), (*_TANH, "activation")),
    "Swish": (24, "return x * f32_sigmoid(alpha * x);", ("alpha",), _ACTIVATION),
}


def _read(*attributes: str) -> str:
    """Statements that name float attributes."""
    return "".join(f"let {a} = bitcast<f32>(p.{a}); " for a in attributes)


def _lowering(name: str) -> LowerFn:
    _, body, attributes, use = ACTIVATIONS[name]

    def lower(n: Node, b: Builder) -> None:
        params: dict[str, Dim | float] = {a: float(n.attr(a)) for a in attributes}
        text = _read(*attributes) + pick({"f": body}, n.input(0))
        launch(b, n.output(), {"x": n.input(0)}, Formula(text, use, params), name.lower())

    return lower


for _name, _entry in ACTIVATIONS.items():
    op(_name, since=_entry[0], shape=first_shape)(_lowering(_name))


@op("Relu", since=6, shape=first_shape)
def relu(n: Node, b: Builder) -> None:
    zero = {"f": "select(x, 0.0, x < 0.0)", "i": "max(x, 0i)", "l": "select(x, vec2<u32>(0u), i64_is_negative(x))"}
    launch(b, n.output(), {"x": n.input(0)}, Formula(f"return {pick(zero, n.input(0))};"), "relu")


@op("Gelu", since=20, shape=first_shape)
def gelu(n: Node, b: Builder) -> None:
    forms = {"none": (_GELU, ("erf",)), "tanh": (_GELU_TANH, _TANH)}
    chosen = forms.get(n.attr("approximate"))
    if chosen is None:
        raise UnsupportedOp(f"approximate={n.attr('approximate')!r} is not defined")
    _gelu(n, b, {"x": n.input(0)}, *chosen)


@op("Gelu", domain=MS_DOMAIN, shape=first_shape)
def contrib_gelu(n: Node, b: Builder) -> None:
    _gelu(n, b, {"x": n.input(0)}, _GELU, ("erf",))


@op("BiasGelu", domain=MS_DOMAIN, shape=first_shape)
def bias_gelu(n: Node, b: Builder) -> None:
    fits_into(b, n.input(1), n.input(0))
    _gelu(n, b, {"x": n.input(0), "bias": n.input(1)}, _GELU, ("erf",))


@op("FastGelu", domain=MS_DOMAIN, shape=first_shape)
def fast_gelu(n: Node, b: Builder) -> None:
    operands = {"x": n.input(0), **({"bias": n.input(1)} if n.has(1) else {})}
    fits_into(b, operands.get("bias", n.input(0)), n.input(0))
    _gelu(n, b, operands, _GELU_TANH, _TANH)


@op("QuickGelu", domain=MS_DOMAIN, shape=first_shape)
def quick_gelu(n: Node, b: Builder) -> None:
    text = pick({"f": "return x * f32_sigmoid(bitcast<f32>(p.alpha) * x);"}, n.input(0))
    formula = Formula(text, _ACTIVATION, {"alpha": float(n.attr("alpha"))})
    launch(b, n.output(), {"x": n.input(0)}, formula, "quick_gelu")


def _gelu(n: Node, b: Builder, operands: dict[str, Value], text: str, use: tuple[str, ...]) -> None:
    pick({"f": ""}, n.input(0))
    formula = Formula(f"let v = {' + '.join(operands)}; return {text};", use)
    launch(b, n.output(), operands, formula, n.op_type.lower())


@op("PRelu", since=7, shape=first_shape)
def prelu(n: Node, b: Builder) -> None:
    """The slope broadcasts to x, never the other way."""
    x = n.input(0)
    fits_into(b, n.input(1), x)
    text = {
        "f": "select(x, slope * x, x < 0.0)", "i": "select(x, slope * x, x < 0i)", "u": "x",
        "l": "select(x, i64_mul(x, slope), i64_is_negative(x))", "m": "x",
    }  # fmt: skip
    launch(b, n.output(), {"x": x, "slope": n.input(1)}, Formula(f"return {pick(text, x)};"), "prelu")


@op("Shrink", since=9, shape=first_shape)
def shrink(n: Node, b: Builder) -> None:
    x, bias, limit = n.input(0), float(n.attr("bias")), float(n.attr("lambd"))
    down = {"f": "x - bias", "i": "x - bias", "u": "x - bias", "l": "i64_sub(x, bias)", "m": "i64_sub(x, bias)"}
    up = {"f": "x + bias", "i": "x + bias", "u": "x", "l": "i64_add(x, bias)", "m": "x"}
    above = {"f": "x > lambd", "i": "x > lambd", "u": "x > lambd", "l": "i64_lt(lambd, x)", "m": "u64_lt(lambd, x)"}
    below = {"f": "x < -lambd", "i": "x < -lambd", "u": "false", "l": "i64_lt(x, i64_neg(lambd))", "m": "false"}
    text = f"let r = select({_ZERO[kind(x)]}, {pick(down, x)}, {above[kind(x)]});"
    text += f" return select(r, {up[kind(x)]}, {below[kind(x)]});"
    if kind(x) == "f":
        formula = Formula(f"{_read('bias', 'lambd')}{text}", params={"bias": bias, "lambd": limit})
        launch(b, n.output(), {"x": x}, formula, "shrink")
        return
    if bias != int(bias) or limit < 0:
        raise UnsupportedOp("Shrink of integers by a fraction, or with lambd < 0")
    numbers = {k: b.constant(np.array(int(v), element_type(x).name)) for k, v in (("bias", bias), ("lambd", limit))}
    launch(b, n.output(), {"x": x, **numbers}, Formula(text), "shrink")


@op("Clip", since=6, until=10, shape=first_shape)
def clip_attributes(n: Node, b: Builder) -> None:
    limits = {k: float(n.attr(k)) for k in ("min", "max")}
    low, high = (f"bitcast<f32>(p.{k})" for k in limits)
    text = pick({"f": f"return f32_clip(x, {low}, {high});"}, n.input(0))
    launch(b, n.output(), {"x": n.input(0)}, Formula(text, _ACTIVATION, limits), "clip")


@op("Clip", since=11, shape=first_shape)
def clip(n: Node, b: Builder) -> None:
    """Limits are one number each, or absent: the type's own. NaN stays; where min > max the result is max."""
    x = n.input(0)
    less = {"f": "{} < {}", "i": "{} < {}", "u": "{} < {}", "l": "i64_lt({}, {})", "m": "u64_lt({}, {})"}
    test = pick(less, x)
    operands = {"x": x}
    lines = ["var r = x;"]
    params: dict[str, Dim | float] = {}
    for k, name, sign in ((1, "low", -1), (2, "high", 1)):
        pair = ("r", "limit") if k == 1 else ("limit", "r")
        if n.has(k):
            b.check(D.eq(n.input(k).elements, 1), f"Clip's limit {name!r} must be one number")
            operands[name] = n.input(k)
            lines.append(f"{{ let limit = {name}; r = select(r, limit, {test.format(*pair)}); }}")
        elif x.dtype in _LARGEST:
            params[name] = sign * _LARGEST[x.dtype]
            lines.append(f"{{ let limit = bitcast<f32>(p.{name}); r = select(r, limit, {test.format(*pair)}); }}")
    if len(lines) == 1:
        b.alias(n.output(), x)
        return
    launch(b, n.output(), operands, Formula(" ".join([*lines, "return r;"]), params=params), "clip")
