"""Pow: base and exponent of any two numeric types; the result has the base's type."""

from __future__ import annotations

import numpy as np

from webrt import dtypes as T
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Formula, op
from webrt.ops.elementwise import kind, launch, pick, same_type

_FLOAT = ("nan", "float", "pow")

# The exponent as an f32 and whether it is odd, for integer exponents of a float base.
_EXPONENT = {
    "i": ("f32(b)", "(bitcast<u32>(b) & 1u) == 1u"), "u": ("f32_from_u32(b)", "(b & 1u) == 1u"),
    "l": ("f32_from_i64(b)", "(b.x & 1u) == 1u"), "m": ("f32_from_u64(b)", "(b.x & 1u) == 1u"),
}  # fmt: skip
# The exponent as 64 bits and whether it is negative, for an integer base.
_WHOLE = {
    "i": ("i64_from_i32(b)", "b < 0i"), "u": ("i64_from_u32(b)", "false"),
    "l": ("b", "i64_is_negative(b)"), "m": ("b", "false"),
}  # fmt: skip
_WIDE = {"i": "i64_from_i32(a)", "u": "i64_from_u32(a)", "l": "a", "m": "a"}
_NARROW = {"i": "bitcast<i32>({}.x)", "u": "{}.x", "l": "{}", "m": "{}"}


@op("Pow", since=7, shape=same_type)
def pow_(n: Node, b: Builder) -> None:
    base, exponent = n.input(0), n.input(1)
    pick(dict.fromkeys("fiulm", ""), base)
    pick(dict.fromkeys("fiulm", ""), exponent)
    if kind(base) != "f":
        _integer(n, b, base, _whole_exponent(b, exponent))
        return
    if exponent.rank <= base.rank and _is_two(exponent):
        launch(b, n.output(), {"a": base}, Formula("return a * a;"), "square")
        return
    if kind(exponent) == "f":
        formula = Formula("return f32_pow(a, b);", _FLOAT)
    else:
        value, odd = _EXPONENT[kind(exponent)]
        formula = Formula(f"return f32_pow_of(a, {value}, true, {odd});", ("int64", "convert", *_FLOAT))
    launch(b, n.output(), {"a": base, "b": exponent}, formula, "pow")


def _integer(n: Node, b: Builder, base: Value, exponent: Value) -> None:
    value, negative = _WHOLE[kind(exponent)]
    power = f"i64_pow({_WIDE[kind(base)]}, {value}, {negative})"
    formula = Formula(f"return {_NARROW[kind(base)].format(power)};", ("int64", "int64_pow"))
    launch(b, n.output(), {"a": base, "b": exponent}, formula, "pow_integer")


def _whole_exponent(b: Builder, exponent: Value) -> Value:
    """An integer exponent; a float one only where its elements are known to be whole: f32 would round the powers."""
    if kind(exponent) != "f":
        return exponent
    if exponent.const is None:
        raise UnsupportedOp("an integer to a float power needs f64 to be exact")
    numbers = exponent.const.astype(np.float64)
    whole = numbers.astype(np.int64)
    if not np.array_equal(whole, numbers):
        raise UnsupportedOp("an integer to a fractional power needs f64 to be exact")
    return b.constant(whole, T.I64)


def _is_two(exponent: Value) -> bool:
    known = exponent.const
    return known is not None and known.size == 1 and float(known.item()) == 2.0
