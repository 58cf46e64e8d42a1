"""Unique: the elements (or slices) are ordered as TopK orders them; how many groups there are is read back."""

from __future__ import annotations

from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_ITERATIONS, Builder, Info, Operand, normalize_axis, op
from webrt.ops.gather import lookup
from webrt.ops.rows import Rows
from webrt.ops.selection import compact, late_size
from webrt.ops.topk import CHUNK, MAX_LENGTH, key_parts, order_rows
from webrt.ops.view import element_type
from webrt.schemas import MS_DOMAIN


def _axis(n: Node) -> int | None:
    axis = None if n.domain else n.attr("axis")
    return None if axis is None else normalize_axis(int(axis), n.input(0).rank)


def _infos(n: Node) -> list[Info]:
    """Of the values, the first places, the inverse and the counts."""
    x, axis = n.input(0), _axis(n)
    size = late_size(n, axis or 0)
    if axis is None:
        return [(x.dtype, (size,)), (T.I64, (size,)), (T.I64, (x.elements,)), (T.I64, (size,))]
    shape = tuple(size if a == axis else d for a, d in enumerate(x.known_shape))
    return [(x.dtype, shape), (T.I64, (size,)), (T.I64, (x.known_shape[axis],)), (T.I64, (size,))]


def _ms_shape(n: Node) -> list[Info]:
    values, _, inverse, counts = _infos(n)
    return [values, inverse, counts]


@op("Unique", since=11, shape=lambda n: _infos(n)[: len(n.outputs)])
def unique(n: Node, b: Builder) -> None:
    groups = _groups(n, b, bool(n.attr("sorted")))
    _values(b, n.output(), groups)
    if n.wants(1):
        b.map(n.output(1), "return vec2<u32>(load_first(i), 0u);", reads={"first": groups.first}, name="unique_first")
    if n.wants(2):
        _inverse(b, n.output(2), groups)
    if n.wants(3):
        _counts(b, n.output(3), groups)


@op("Unique", domain=MS_DOMAIN, shape=_ms_shape, inputs="_")
def ms_unique(n: Node, b: Builder) -> None:
    """The distinct elements of a vector in the order of their first places; the inverse, and counts."""
    groups = _groups(n, b, False)
    _values(b, n.output(), groups)
    _inverse(b, n.output(1), groups)
    _counts(b, n.output(2), groups)


@dataclass(frozen=True)
class _Items:
    """What is compared: the elements of `x`, or its slices along an axis of `length`. `inner` elements follow one
    another in a slice, `width` make it up. A kernel that binds x as `data` has `before(a, c)` over their numbers."""

    x: Value
    length: Dim
    inner: Dim
    width: Dim

    @staticmethod
    def of(n: Node) -> _Items:
        x, axis = n.input(0), _axis(n)
        if axis is None:
            return _Items(x, x.elements, 1, 1)
        shape = x.known_shape
        inner = D.prod(shape[axis + 1 :])
        width = D.mul(D.prod(shape[:axis]), inner)
        length = shape[axis]
        steps = D.mul(D.maximum(CHUNK, D.mul(D.ceildiv(length, CHUNK), 9)), width)
        if not D.at_least(MAX_ITERATIONS, steps):
            raise UnsupportedOp(f"{length} slices of {width} elements each, more than one invocation compares")
        return _Items(x, length, inner, width)

    @property
    def params(self) -> dict[str, Dim | float]:
        return {"items": self.length, "inner": self.inner, "width": self.width}

    @property
    def use(self) -> tuple[str, ...]:
        return ("nan",) if element_type(self.x) in T.FLOATS else ()

    @property
    def fns(self) -> list[str]:
        kind, text, less = key_parts(self.x.dtype)
        before = _BEFORE.format(less=less.format("u", "v"), other=less.format("v", "u"))
        return [f"fn word(v: Data) -> {kind} {{ return {text}; }}", before]


@dataclass(frozen=True)
class _Groups:
    """Groups of equal items. In ascending order group g starts at place `starts[g]` and has `low[g]` first;
    item i is in group `member[i]`. `first` are the first items in the output's order: low, or low in order."""

    items: _Items
    starts: Value
    low: Value
    member: Value
    first: Value

    @property
    def count(self) -> Dim:
        return self.first.elements


def _groups(n: Node, b: Builder, ordered: bool) -> _Groups:
    items, axis = _Items.of(n), _axis(n)
    size = n.output().known_shape[axis or 0]
    b.check(D.lt(items.length, MAX_LENGTH), f"Unique of more than {MAX_LENGTH} elements")
    order, numbers = b.temp(T.U32, (items.length,)), b.temp(T.U32, (items.length,))
    b.map(numbers, "return i;", name="numbers")
    fns = ["alias Key = u32;", "fn key(v: X) -> Key { return v; }", *items.fns]
    rows = Rows.of([items.length], [0])
    order_rows(b, order, {"x": numbers, "data": items.x}, rows, items.length, fns, items.use, items.params)
    reads: dict[str, Operand] = {"order": order, "data": items.x}
    keep = "if (i == 0u) { return true; }\nreturn before(load_order(i - 1u), load_order(i));"
    starts = compact(b, size, items.length, keep, reads, params=items.params, fns=items.fns, use=items.use)
    low, member = b.temp(T.U32, (size,)), b.temp(T.U32, (items.length,))
    b.map(low, "return load_order(load_starts(i));", reads={"order": order, "starts": starts}, name="unique_low")
    params = {**items.params, "groups": size}
    text = _SEARCH.replace("{beyond}", "before(i, load_low(middle))")
    b.map(
        member, f"{text}return at;", reads={"low": low, "data": items.x}, params=params, fns=items.fns, use=items.use,
        name="unique_member",
    )  # fmt: skip
    first = low
    if not ordered:
        keep = "return load_low(load_member(i)) == i;"
        first = compact(b, size, items.length, keep, {"low": low, "member": member}, known=True)
    return _Groups(items, starts, low, member, first)


def _values(b: Builder, out: Value, groups: _Groups) -> None:
    items = groups.items
    params: dict[str, Dim | float] = {"count": groups.count, "size": items.length}
    text = "let row = (t / p.count) * p.size + load_indices(t % p.count);"
    lookup(b, out, items.x, groups.first, items.inner, text, params, "unique")


def _inverse(b: Builder, out: Value, groups: _Groups) -> None:
    reads: dict[str, Operand] = {"member": groups.member, "low": groups.low, "first": groups.first}
    text = _SEARCH.replace("{beyond}", "load_first(middle) > load_low(load_member(i))")
    params: dict[str, Dim | float] = {"groups": groups.count}
    if groups.first is groups.low:
        text, reads, params = "let at = load_member(i);\n", {"member": groups.member}, {}
    b.map(out, f"{text}return vec2<u32>(at, 0u);", reads=reads, params=params, name="unique_inverse")


def _counts(b: Builder, out: Value, groups: _Groups) -> None:
    reads: dict[str, Operand] = {"member": groups.member, "first": groups.first, "starts": groups.starts}
    params: dict[str, Dim | float] = {"groups": groups.count, "items": groups.items.length}
    b.map(out, _COUNT, reads=reads, params=params, name="unique_counts")


_BEFORE = """fn before(a: u32, c: u32) -> bool {{
  for (var t = 0u; t < p.width; t += 1u) {{
    let at = (t / p.inner) * p.items * p.inner + t % p.inner;
    let u = word(load_data(at + a * p.inner));
    let v = word(load_data(at + c * p.inner));
    if ({less}) {{ return true; }}
    if ({other}) {{ return false; }}
  }}
  return false;
}}"""

_SEARCH = """var at = 0u;
var high = p.groups;
while (high - at > 1u) {
  let middle = (at + high) / 2u;
  if ({beyond}) { high = middle; } else { at = middle; }
}
"""
"""`at`: the last group that is not beyond what is looked for."""

_COUNT = """let g = load_member(load_first(i));
var end = p.items;
if (g + 1u < p.groups) { end = load_starts(g + 1u); }
return vec2<u32>(end - load_starts(g), 0u);"""
