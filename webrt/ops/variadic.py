"""Max, Min, Sum and Mean of any number of tensors that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from webrt import dtypes as T
from webrt.ir import Node, Value
from webrt.lowering import Builder, Formula, LowerFn, broadcast_shapes, op
from webrt.ops.elementwise import kind, launch, pick, same_type
from webrt.ops.view import element_type

# Operator → how two values combine, by class of arithmetic. WGSL's max and min may drop NaN; it is mended afterwards.
_COMBINE: dict[str, dict[str, str]] = {
    **{
        m.capitalize(): {
            "f": f"{m}({{}}, {{}})", "i": f"{m}({{}}, {{}})", "u": f"{m}({{}}, {{}})", "l": f"i64_{m}({{}}, {{}})",
            "m": f"u64_{m}({{}}, {{}})",
        }
        for m in ("max", "min")
    },
    "Sum": {"f": "{} + {}"},
    "Mean": {"f": "{} + {}"},
}  # fmt: skip


def _lowering(name: str) -> LowerFn:
    def lower(n: Node, b: Builder) -> None:
        pick(_COMBINE[name], n.input(0))
        inputs = [n.input(i) for i in range(len(n.inputs))]
        if len(inputs) == 1:
            b.alias(n.output(), inputs[0])
        else:
            _fold(n, b, inputs)

    return lower


def _fold(n: Node, b: Builder, inputs: Sequence[Value]) -> None:
    """As many operands a launch as the target binds buffers; the rest through temporaries, floats in f32."""
    room = b.target.limit("maxStorageBuffersPerShaderStage") - 1
    rest = list(inputs)
    while len(rest) > room:
        now, rest = rest[:room], rest[room:]
        dtype = T.F32 if kind(now[0]) == "f" else element_type(now[0])
        part = b.temp(dtype, broadcast_shapes(*(v.known_shape for v in now)))
        _combine(n, b, part, now, 1)
        rest = [part, *rest]
    _combine(n, b, n.output(), rest, len(inputs) if n.op_type == "Mean" else 1)


def _combine(n: Node, b: Builder, out: Value, operands: Sequence[Value], count: int) -> None:
    """One launch: the operands' combination, divided by `count`."""
    names = [f"x{i}" for i in range(len(operands))]
    text = pick(_COMBINE[n.op_type], operands[0])
    result = names[0]
    for name in names[1:]:
        result = text.format(result, name)
    use: tuple[str, ...] = ()
    if n.op_type in ("Max", "Min") and kind(operands[0]) == "f":
        unordered = " | ".join(f"is_nan({x})" for x in names)
        result, use = f"select({result}, {' + '.join(names)}, {unordered})", ("nan",)
    if count > 1:
        result = f"({result}) / {count}.0"
    launch(b, out, dict(zip(names, operands)), Formula(f"return {result};", use), n.op_type.lower())


for _name in _COMBINE:
    op(_name, since=6, shape=same_type)(_lowering(_name))
