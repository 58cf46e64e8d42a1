"""Max, Min, Sum and Mean of any number of tensors that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from webrt import dtypes as T
from webrt.ir import Node, Value
from webrt.lowering import Builder, LowerFn, broadcast_shapes, op
from webrt.ops.elementwise import Formula, launch, pick, same_type

# Operator → (first opset, how two values combine, by class of arithmetic, files of shaders/lib/).
_COMBINE: dict[str, tuple[int, dict[str, str], tuple[str, ...]]] = {
    **{
        m.capitalize(): (
            6,
            {"f": m + "_nan({}, {})", "i": m + "({}, {})", "u": m + "({}, {})", "l": "i64_" + m + "({}, {})",
             "m": "u64_" + m + "({}, {})"},
            ("nan",),
        )
        for m in ("max", "min")
    },
    "Sum": (6, {"f": "{} + {}"}, ()),
    "Mean": (6, {"f": "{} + {}"}, ()),
}  # fmt: skip


def _lowering(name: str) -> LowerFn:
    _, formulas, use = _COMBINE[name]

    def lower(n: Node, b: Builder) -> None:
        text = pick(formulas, n.input(0))
        inputs = [n.input(i) for i in range(len(n.inputs))]
        if len(inputs) == 1:
            b.alias(n.output(), inputs[0])
            return
        _fold(n, b, inputs, text, use)

    return lower


def _fold(n: Node, b: Builder, inputs: Sequence[Value], text: str, use: tuple[str, ...]) -> None:
    """As many operands a launch as the target binds buffers; the rest through temporaries, floats in f32."""
    room = b.target.limit("maxStorageBuffersPerShaderStage") - 1
    rest = list(inputs)
    while rest:
        now, rest = rest[:room], rest[room:]
        names = [f"x{i}" for i in range(len(now))]
        result = names[0]
        for name in names[1:]:
            result = text.format(result, name)
        if n.op_type == "Mean" and not rest:
            result = f"({result}) / {len(inputs)}.0"
        out = n.output()
        if rest:
            kind = T.F32 if out.dtype in T.FLOATS else now[0].dtype
            assert kind is not None
            out = b.temp(kind, broadcast_shapes(*(v.known_shape for v in now)))
        launch(b, out, dict(zip(names, now)), Formula(f"return {result};", use), n.op_type.lower())
        rest = [out, *rest] if rest else []


for _name, _entry in _COMBINE.items():
    op(_name, since=_entry[0], shape=same_type)(_lowering(_name))
