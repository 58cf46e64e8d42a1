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
from webrt.ops import picks
from webrt.ops.broadcasting import address, align
from webrt.ops.elementwise import from_params, scalar_words
from webrt.ops.view import element_type, one_by_one
from webrt.target import Target

_PARAM = re.compile(r"\bp\.(?=[a-z])")
_READ = re.compile(r"\bp\.(q\w+)")
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
    text = _Text(outlines, {v: f"{k}" for k, v in enumerate(outlines)}, bindings)
    text.add(out)
    if any(v.dtype in T.INTS64 for v in (*outlines, *bindings)):
        text.use = {"int64": None, **text.use}
    reads: dict[str, Value] = {name: v for v, name in bindings.items()}
    params = text.joined() if text.families else text.params()
    b.map(
        out, f"return value{text.places[out]}(i);", reads=reads, params=params, fns=text.fns,
        use=tuple(text.use), name=name,
    )  # fmt: skip


@dataclass
class _Text:
    """The functions of a kernel of outlines: `value<place>(i)` is element i of what has that place."""

    outlines: Mapping[Value, Outline]
    places: Mapping[Value, str]
    bindings: Mapping[Value, str]
    fns: list[str] = field(default_factory=list)
    use: dict[str, None] = field(default_factory=dict)
    added: set[Value] = field(default_factory=set)
    families: int = 0

    def add(self, v: Value) -> None:
        """Adds the function of a value, and of all that it loads."""
        if v in self.added or v not in self.outlines:
            return
        self.added.add(v)
        outline = self.outlines[v]
        families = picks.families(outline, self.outlines)
        if families:
            self.families += len(families)
            self._pick(outline, families)
            return
        self._function(outline, self.places, {})
        for read in outline.reads.values():
            self.add(read)

    def params(self) -> dict[str, Dim | float]:
        """The parameters that the functions read."""
        named = set(_READ.findall("\n".join(self.fns)))
        every = ((f"q{self.places[v]}_{name}", x) for v, o in self.outlines.items() for name, x in o.params.items())
        return {name: x for name, x in every if name in named}

    def joined(self) -> dict[str, Dim | float]:
        """The parameters, equal ones under one name in the functions, too: inputs that are alike have many in common,
        and each that a kernel reads takes as long as a dozen additions."""
        first: dict[tuple[type, Dim | float], str] = {}
        params = self.params()
        name_of = {name: first.setdefault((type(x), x), name) for name, x in params.items()}
        self.fns = [_READ.sub(lambda m: f"p.{name_of[m.group(1)]}", fn) for fn in self.fns]
        return {name: x for name, x in params.items() if name_of[name] == name}

    def _function(self, outline: Outline, places: Mapping[Value, str], picked: Mapping[str, str]) -> None:
        """The outline's functions, with its own constants and parameters under names of their own; `picked` parameters
        are variables."""
        k, kind = places[outline.out], element_type(outline.out).wgsl
        text = "\n\n".join([*outline.fns, f"fn value(i: u32) -> Out {{\n{outline.body}\n}}"])
        names = {name: f"{name}{k}" for name in _DEFINED.findall(text)} | {"Out": kind}
        for name, v in outline.reads.items():
            names[f"load_{name}"] = f"value{places[v]}" if v in self.outlines else f"load_{self.bindings[v]}"
            names[name[0].upper() + name[1:]] = element_type(v).wgsl
        pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        renamed = pattern.sub(lambda m: names[m.group(1)], text)
        if picked:
            renamed = re.sub(rf"\bp\.({'|'.join(picked)})\b", lambda m: picked[m.group(1)], renamed)
        self.fns.append(self._own(outline, renamed))
        self.use |= dict.fromkeys(outline.use)

    def _own(self, outline: Outline, text: str) -> str:
        return _PARAM.sub(f"p.q{self.places[outline.out]}_", text)

    def _pick(self, outline: Outline, families: Sequence[picks.Family]) -> None:
        """A pick whose inputs are alike, in families, the largest first: each of these runs once."""
        count = picks.branches(outline)
        lines = picks.head(count)
        alone = sorted(set(range(count)).difference(*(f.members for f in families)))
        for k in alone:
            v = outline.reads[f"x{k}"]
            self.add(v)
            load = f"value{self.places[v]}" if v in self.outlines else f"load_{self.bindings[v]}"
            lines.append(f"if ({picks.inside([k], count)}) {{ return {load}({picks.at(k)}); }}")
        texts = [self._own(outline, line) for line in lines]
        for n, family in reversed([*enumerate(families)]):
            last = n == 0
            condition = "" if last else self._own(outline, f"if ({picks.inside(family.members, count)}) ")
            texts.append(f"{condition}{{ {self._family(outline, n, family)} }}")
        kind, place = element_type(outline.out).wgsl, self.places[outline.out]
        self.fns.append("\n".join([f"fn value{place}(i: u32) -> {kind} {{", *texts, "}"]))

    def _family(self, outline: Outline, n: int, family: picks.Family) -> str:
        """What returns the element of an input of the family; its functions and variables are added."""
        first, place = family.trees[0], self.places[outline.out]
        places = {**self.places, **{v: f"{place}_{n}_{i}" for i, v in enumerate(first)}}
        sets = []
        for i, v in enumerate(first):
            picked = {name: f"picked{places[v]}_{name}" for name in family.differing(i, self.outlines)}
            self.fns += [f"var<private> {variable}: u32;" for variable in picked.values()]
            self._function(self.outlines[v], places, picked)
            for name, variable in picked.items():
                of = {m: f"p.q{self.places[tree[i]]}_{name}" for m, tree in zip(family.members, family.trees)}
                sets.append(f"{variable} = {self._chain(outline, family, of)};")
        index = self._chain(outline, family, {m: self._own(outline, picks.at(m)) for m in family.members})
        return " ".join([*sets, f"return value{places[first[0]]}({index});"])

    def _chain(self, outline: Outline, family: picks.Family, of: Mapping[int, str]) -> str:
        ends = {m: self._own(outline, f"j < p.e{m}") for m in family.members}
        return picks.chain(family.members, of, ends)
