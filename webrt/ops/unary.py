"""Elementwise functions of one tensor without attributes: rounding, roots, exponentials, trigonometry, signs, tests."""

from __future__ import annotations

from webrt import dtypes as T
from webrt.ir import Node
from webrt.lowering import Builder, Formula, Info, LowerFn, op
from webrt.ops.elementwise import first_shape, launch, pick

_FLOAT_BITS = ("nan", "float")

# Operator → (first opset, formula by class of arithmetic, files of shaders/lib/).
UNARY: dict[str, tuple[int, dict[str, str], tuple[str, ...]]] = {
    "Abs": (6, {"f": "abs(x)", "i": "abs(x)", "u": "x", "l": "i64_abs(x)", "m": "x"}, ()),
    "Neg": (6, {"f": "-x", "i": "-x", "l": "i64_neg(x)"}, ()),
    "Sign": (
        9,
        {
            "f": "f32_sign(x)", "i": "sign(x)", "u": "min(x, 1u)",
            "l": "i64_sign(x)", "m": "vec2<u32>(min(x.x | x.y, 1u), 0u)",
        },
        _FLOAT_BITS,
    ),
    "Floor": (6, {"f": "floor(x)"}, ()),
    "Ceil": (6, {"f": "ceil(x)"}, ()),
    "Round": (11, {"f": "round(x)"}, ()),
    "Sqrt": (6, {"f": "sqrt(x)"}, ()),
    "Reciprocal": (6, {"f": "1.0 / x"}, ()),
    "Exp": (6, {"f": "f32_exp(x)"}, _FLOAT_BITS),
    "Log": (6, {"f": "f32_log(x)"}, _FLOAT_BITS),
    "Sin": (7, {"f": "f32_sin(x)"}, ("int64", *_FLOAT_BITS, "trig")),
    "Cos": (7, {"f": "f32_cos(x)"}, ("int64", *_FLOAT_BITS, "trig")),
    "Tan": (7, {"f": "f32_tan(x)"}, ("int64", *_FLOAT_BITS, "trig")),
    "Asin": (7, {"f": "f32_asin(x)"}, (*_FLOAT_BITS, "arc")),
    "Acos": (7, {"f": "f32_acos(x)"}, (*_FLOAT_BITS, "arc")),
    "Atan": (7, {"f": "f32_atan(x)"}, (*_FLOAT_BITS, "arc")),
    "Sinh": (9, {"f": "f32_sinh(x)"}, (*_FLOAT_BITS, "hyperbolic")),
    "Cosh": (9, {"f": "f32_cosh(x)"}, (*_FLOAT_BITS, "hyperbolic")),
    "Tanh": (6, {"f": "f32_tanh(x)"}, (*_FLOAT_BITS, "hyperbolic")),
    "Asinh": (9, {"f": "f32_asinh(x)"}, (*_FLOAT_BITS, "hyperbolic")),
    "Acosh": (9, {"f": "f32_acosh(x)"}, (*_FLOAT_BITS, "hyperbolic")),
    "Atanh": (9, {"f": "f32_atanh(x)"}, (*_FLOAT_BITS, "hyperbolic")),
    "Erf": (9, {"f": "f32_erf(x)"}, ("erf",)),
    "Not": (1, {"b": "!x"}, ()),
    "BitwiseNot": (18, {"i": "~x", "u": "~x", "l": "~x", "m": "~x"}, ()),
}  # fmt: skip


def _lowering(name: str) -> LowerFn:
    _, formulas, use = UNARY[name]

    def lower(n: Node, b: Builder) -> None:
        x = n.input(0)
        launch(b, n.output(), {"x": x}, Formula(f"return {pick(formulas, x)};", use), name.lower())

    return lower


for _name, _entry in UNARY.items():
    op(_name, since=_entry[0], shape=first_shape)(_lowering(_name))


def _test_shape(n: Node) -> list[Info]:
    return [(T.BOOL, n.input(0).shape)]


@op("IsNaN", since=9, shape=_test_shape)
def is_nan(n: Node, b: Builder) -> None:
    x = n.input(0)
    launch(b, n.output(), {"x": x}, Formula(f"return {pick({'f': 'is_nan(x)'}, x)};", ("nan",)), "isnan")


@op("IsInf", since=10, shape=_test_shape)
def is_inf(n: Node, b: Builder) -> None:
    """`detect` holds one bit for +∞ and one for −∞."""
    x = n.input(0)
    detect = int(bool(n.attr("detect_positive"))) + 2 * int(bool(n.attr("detect_negative")))
    text = pick({"f": "is_inf(x) && ((p.detect >> (bitcast<u32>(x) >> 31u)) & 1u) == 1u"}, x)
    launch(b, n.output(), {"x": x}, Formula(f"return {text};", ("nan",), {"detect": detect}), "isinf")
