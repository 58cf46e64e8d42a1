"""Arithmetic, bitwise, logical and comparing operators of two tensors, with numpy's broadcasting."""

from __future__ import annotations

from webrt.errors import UnsupportedOp
from webrt.ir import Node
from webrt.lowering import Builder, Formula, LowerFn, ShapeFn, op
from webrt.ops.elementwise import kind, launch, pick, same_type, truth

_ANY = "fiulm"


def _all(text: str, kinds: str = _ANY) -> dict[str, str]:
    return dict.fromkeys(kinds, text)


_ORDER = _all("a < b", "fiu") | {"l": "i64_lt(a, b)", "m": "u64_lt(a, b)"}
_REVERSED = {k: v.replace("a < b", "a > b").replace("(a, b)", "(b, a)") for k, v in _ORDER.items()}

# Operator → (first opset, formula by class of arithmetic, files of shaders/lib/, shape function).
_BINARY: dict[str, tuple[int, dict[str, str], tuple[str, ...], ShapeFn]] = {
    "Add": (7, _all("a + b", "fiu") | _all("i64_add(a, b)", "lm"), (), same_type),
    "Sub": (7, _all("a - b", "fiu") | _all("i64_sub(a, b)", "lm"), (), same_type),
    "Mul": (7, _all("a * b", "fiu") | _all("i64_mul(a, b)", "lm"), (), same_type),
    "BitwiseAnd": (18, _all("a & b", "iulm"), (), same_type),
    "BitwiseOr": (18, _all("a | b", "iulm"), (), same_type),
    "BitwiseXor": (18, _all("a ^ b", "iulm"), (), same_type),
    "And": (7, {"b": "a && b"}, (), truth),
    "Or": (7, {"b": "a || b"}, (), truth),
    "Xor": (7, {"b": "a != b"}, (), truth),
    "Equal": (7, _all("a == b", "fiub") | _all("i64_eq(a, b)", "lm"), (), truth),
    "Less": (7, _ORDER, (), truth),
    "Greater": (7, _REVERSED, (), truth),
    "LessOrEqual": (12, _all("a <= b", "fiu") | {k: f"!{_REVERSED[k]}" for k in "lm"}, (), truth),
    "GreaterOrEqual": (12, _all("a >= b", "fiu") | {k: f"!{_ORDER[k]}" for k in "lm"}, (), truth),
}

_DIVISION: dict[str, tuple[str, tuple[str, ...]]] = {
    "f": ("a / b", ()), "i": ("i32_div(a, b)", ("int32_div",)), "u": ("u32_div(a, b)", ("int32_div",)),
    "l": ("i64_div(a, b)", ("int64_div",)), "m": ("u64_div(a, b)", ("int64_div",)),
}  # fmt: skip
_REMAINDER: dict[str, tuple[str, tuple[str, ...]]] = {
    "f": ("f32_{}(a, b)", ("nan", "float", "fmod")), "i": ("i32_{}(a, b)", ("int32_div",)),
    "u": ("u32_mod(a, b)", ("int32_div",)), "l": ("i64_{}(a, b)", ("int64_div",)),
    "m": ("u64_mod(a, b)", ("int64_div",)),
}  # fmt: skip


def _lowering(name: str) -> LowerFn:
    _, formulas, use, _ = _BINARY[name]

    def lower(n: Node, b: Builder) -> None:
        _launch(n, b, f"return {pick(formulas, n.input(0))};", use)

    return lower


def _launch(n: Node, b: Builder, text: str, use: tuple[str, ...] = ()) -> None:
    launch(b, n.output(), {"a": n.input(0), "b": n.input(1)}, Formula(text, use), n.op_type.lower())


for _name, _entry in _BINARY.items():
    op(_name, since=_entry[0], shape=_entry[3])(_lowering(_name))


@op("Div", since=7, shape=same_type)
def div(n: Node, b: Builder) -> None:
    """Integers truncate; a division by zero gives 0, as numpy's."""
    pick(_all(""), n.input(0))
    text, use = _DIVISION[kind(n.input(0))]
    _launch(n, b, f"return {text};", use)


@op("Mod", since=10, shape=same_type)
def mod(n: Node, b: Builder) -> None:
    """fmod=0: the divisor's sign, as numpy's mod; fmod=1: the dividend's, as C's fmod. Exact for floats too."""
    pick(_all(""), n.input(0))
    text, use = _REMAINDER[kind(n.input(0))]
    names = {"f": ("mod", "fmod")}.get(kind(n.input(0)), ("mod", "rem"))
    _launch(n, b, f"return {text.format(names[bool(n.attr('fmod'))])};", use)


@op("BitShift", since=11, shape=same_type)
def bit_shift(n: Node, b: Builder) -> None:
    """Shifts by the width and more, or by a negative count, leave 0, or −1 of a negative number to the right."""
    x = n.input(0)
    direction = n.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise UnsupportedOp(f"direction={direction!r} is not defined")
    left, bits = direction == "LEFT", x.dtype.bits if x.dtype is not None else 0
    count = "select(b.x, 64u, b.y != 0u)"
    text = {
        "u": f"select(a {'<<' if left else '>>'} (b & 31u), 0u, b >= {bits}u)",
        "i": (
            f"select(a << (bitcast<u32>(b) & 31u), 0i, bitcast<u32>(b) >= {bits}u)" if left
            else f"a >> select(bitcast<u32>(b), 31u, bitcast<u32>(b) >= {bits}u)"
        ),
        "l": f"{'u64_shl' if left else 'i64_shr'}(a, {count})",
        "m": f"{'u64_shl' if left else 'u64_shr'}(a, {count})",
    }  # fmt: skip
    _launch(n, b, f"return {pick(text, x)};")
