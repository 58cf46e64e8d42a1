"""Outputs that take the place of an operand that nobody reads afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from webrt import wgsl
from webrt.compiler.lower import Item, alias_roots, is_sizes, last_uses, part_starts, writes
from webrt.ir import Graph, Value
from webrt.lowering import Alias, CopyBytes, Launch


def reuse(graph: Graph, items: Sequence[Item], copied: bool = True) -> list[Item]:
    """A launch that may write over an operand (`Launch.over`) which is read there for the last time → the same kernel
    with one binding for both, behind an Alias of the output. Inputs, constants, sizes and parts of other tensors stay
    as they are; where `copied` is False, what copies make or read, too: it may become such a part."""
    return _Reuse(graph, items, copied).items()


class _Reuse:
    def __init__(self, graph: Graph, items: Sequence[Item], copied: bool) -> None:
        self._items, self._inputs = items, set(graph.inputs)
        self._roots, self._parts = alias_roots(items), part_starts(items)
        self._last = last_uses(graph, items, self._roots)
        self._writers = Counter(self._root(v) for item in items for v in writes(item.step))
        copies = [] if copied else [item.step for item in items if isinstance(item.step, CopyBytes)]
        self._kept = {self._root(v) for step in copies for v in (step.source, step.target)}

    def items(self) -> list[Item]:
        out: list[Item] = []
        for i, item in enumerate(self._items):
            step = item.step
            place = self._place(step, i) if isinstance(step, Launch) else None
            if place is None or not isinstance(step, Launch):
                out.append(item)
                continue
            operand, made = step.bindings[place].value, _written(step)
            root = self._root(operand)
            self._last[root] = max(self._last[root], self._last[made])
            self._roots[made] = root
            out += [Item(Alias(made, operand), item.node), Item(_over(step, place), item.node)]
        return out

    def _place(self, step: Launch, index: int) -> int | None:
        """The binding of the first operand that may be written over; None where there is none."""
        if not step.over or _written(step) in self._roots or self._writers[_written(step)] != 1:
            return None
        bound = [self._root(b.value) for b in step.bindings]
        for place in step.over:
            root, operand = bound[place], step.bindings[place].value
            kept = root.const is not None or root in self._inputs or is_sizes(root) or root in self._kept
            if not kept and operand not in self._parts and self._last[root] == index and bound.count(root) == 1:
                return place
        return None

    def _root(self, value: Value) -> Value:
        while value in self._roots:
            value = self._roots[value]
        return value


def _written(step: Launch) -> Value:
    return next(b.value for b in step.bindings if b.access != "r")


def _over(step: Launch, place: int) -> Launch:
    """The launch without binding `place`, whose kernels find that operand in the output's buffer."""
    written = next(i for i, b in enumerate(step.bindings) if b.access != "r")
    return replace(
        step,
        alternatives=tuple((wgsl.in_place(k, place, written), groups, when) for k, groups, when in step.alternatives),
        bindings=(*step.bindings[:place], *step.bindings[place + 1 :]),
        textures=tuple(t - (t > place) for t in step.textures),
        over=(),
    )
