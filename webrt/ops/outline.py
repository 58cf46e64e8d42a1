"""What lines compute element by element, as functions of an index: one kernel can then compute several of them.

An operator that moves elements and an elementwise formula are both `out[i] = body(i)`, where the body loads elements of
the operands at indices that it works out. The body of one, as a WGSL function, takes the place of the other's loads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from webrt import dtypes as T
from webrt import lowering
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Elementwise, Operand, Variant
from webrt.ops.broadcasting import address, align
from webrt.ops.elementwise import from_params, scalar_words
from webrt.ops.view import element_type, one_by_one
from webrt.target import Target

_PARAM = re.compile(r"\bp\.(?=[a-z])")
_DEFINED = re.compile(r"^\s*(?:fn|const|alias) (\w+)", re.M)


@dataclass(frozen=True)
class Outline:
    """Element i of `out` is what `body`, the inside of `fn (i: u32) -> Out`, returns. It loads by `load_<name>(k)`."""

    out: Value
    body: str
    reads: Mapping[str, Value] = field(default_factory=dict)
    params: Mapping[str, Dim | float] = field(default_factory=dict)
    fns: Sequence[str] = ()
    use: Sequence[str] = ()


class Recorder(Builder):
    """A builder that keeps what lowerings ask for as outlines. Raises UnsupportedOp for what has none."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.outlines: list[Outline] = []

    def alias(self, out: Value, source: Value) -> None:
        self.outlines.append(Outline(out, "return load_x(i);", {"x": source}))

    def copy(self, source: Value, source_offset: Dim, out: Value, out_offset: Dim, count: Dim) -> None:
        raise UnsupportedOp("a copy has no outline")

    def launch(self, *variants: Variant, **_: object) -> None:
        raise UnsupportedOp("a launch has no outline")

    def map(
        self, out: Value, element: str, *, reads: Mapping[str, Operand] | None = None,
        params: Mapping[str, Dim | float] | None = None, fns: Sequence[str] = (), use: Sequence[str] = (),
        as_type: Mapping[str, DType] | None = None, vec: Mapping[str, int] | None = None, over: Collection[str] = (),
        name: str = "map",
    ) -> None:  # fmt: skip
        whole = {k: v for k, v in (reads or {}).items() if isinstance(v, Value)}
        if any(lanes != 1 for lanes in (vec or {}).values()) or len(whole) != len(reads or {}):
            raise UnsupportedOp("units and windows have no outline")
        self.outlines.append(Outline(out, element, whole, dict(params or {}), list(fns), list(use)))


def of_node(node: Node, target: Target) -> list[Outline]:
    """The outlines of a node whose operator moves or makes elements; none where it does more."""
    entry, recorder = lowering.find(node.domain, node.op_type, node.opset), Recorder(target)
    try:
        with one_by_one():
            if entry is not None:
                entry.lower(node, recorder)
    except UnsupportedOp:
        return []
    return recorder.outlines


def of_formula(step: Elementwise) -> Outline:
    """The outline of an elementwise formula; constants of one element are parameters."""
    types = {k: element_type(v) for k, v in step.operands.items()}
    scalars = {k: words for k, v in step.operands.items() if (words := scalar_words(k, v))}
    reads = {k: v for k, v in step.operands.items() if k not in scalars}
    at = address(align(step.out.known_shape, {k: v.known_shape for k, v in reads.items()}), "i")
    params: dict[str, Dim | float] = {**step.formula.params, **at.params}
    for words in scalars.values():
        params |= words
    values = [from_params(k, types[k]) if k in scalars else f"load_{k}({at.index[k]})" for k in step.operands]
    arguments = ", ".join(f"{k}: {t.wgsl}" for k, t in types.items())
    apply = f"fn apply({arguments}) -> Out {{ {step.formula.body} }}"
    body = "\n".join([*at.lines, f"return apply({', '.join(values)});"])
    return Outline(step.out, body, reads, params, [*step.formula.fns, apply], step.formula.use)


def needed(outlines: Mapping[Value, Outline], v: Value) -> dict[Value, Outline]:
    """The outline of v, and those of what it loads."""
    found = dict[Value, Outline]()
    waiting = [v]
    while waiting:
        value = waiting.pop()
        if value in outlines and value not in found:
            found[value] = outlines[value]
            waiting += outlines[value].reads.values()
    return found


def stored(outlines: Mapping[Value, Outline]) -> list[Value]:
    """The tensors that a kernel of these outlines reads."""
    return list(dict.fromkeys(v for o in outlines.values() for v in o.reads.values() if v not in outlines))


def launch_outlines(b: Builder, out: Value, outlines: Mapping[Value, Outline], name: str) -> None:
    """One kernel that computes `out` by its outline and those that stand for what it loads. An invocation computes one
    element: SwiftShader takes seconds to compile the divisions of four, and runs them no faster."""
    bindings = {v: f"x{k}" for k, v in enumerate(stored(outlines))}
    places = {v: k for k, v in enumerate(outlines)}
    params: dict[str, Dim | float] = {}
    fns, use = list[str](), dict[str, None]()
    for v, outline in outlines.items():
        fns += _functions(outline, places, bindings)
        use |= dict.fromkeys(outline.use)
        params |= {f"q{places[v]}_{name}": x for name, x in outline.params.items()}
    if any(v.dtype in T.INTS64 for v in (*outlines, *bindings)):
        use = {"int64": None, **use}
    reads: dict[str, Value] = {name: v for v, name in bindings.items()}
    b.map(out, f"return value{places[out]}(i);", reads=reads, params=params, fns=fns, use=tuple(use), name=name)


def _functions(outline: Outline, places: Mapping[Value, int], bindings: Mapping[Value, str]) -> list[str]:
    """The outline as `fn value<place>(i)`, its own functions, constants and parameters under names of their own."""
    k = places[outline.out]
    kind = element_type(outline.out).wgsl
    text = "\n\n".join([*outline.fns, f"fn value(i: u32) -> Out {{\n{outline.body}\n}}"])
    names = {name: f"{name}{k}" for name in _DEFINED.findall(text)} | {"Out": kind}
    for name, v in outline.reads.items():
        names[f"load_{name}"] = f"value{places[v]}" if v in places else f"load_{bindings[v]}"
        names[name[0].upper() + name[1:]] = element_type(v).wgsl
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    renamed = pattern.sub(lambda m: names[m.group(1)], text)
    return [_PARAM.sub(f"p.q{k}_", renamed)]
