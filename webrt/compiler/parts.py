"""Tensors that are parts of another tensor's slot instead of copies: what Concat, Split, Slice and Gather of whole runs
would copy is written, or read, where it is."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from webrt import dims as D
from webrt.compiler.lower import Item, alias_roots, reads, writes
from webrt.compiler.memory import early_variables, nbytes
from webrt.compiler.partition import Placed
from webrt.compiler.touched import Live, touched
from webrt.dims import Dim
from webrt.ir import Graph, Value
from webrt.lowering import WINDOW_ALIGN, Alias, CopyBytes

MOST_TIMES = 64
"""A part of free size may start at so many times its own size: one without elements then starts at 0. No device binds
what starts at the end of a buffer."""


def share(graph: Graph, items: Sequence[Item], placed: list[Placed]) -> list[Item]:
    """A copy of a run of a tensor, which nobody changes as long as the copy is read → the copy is a part of the tensor
    (Split, Slice). A copy of a whole tensor into a run of a larger one → the tensor is a part of that from its first
    write on (Concat). Lines of `placed` that copied nothing else become aliases.

    Copies stay where a part does not provably start at a multiple of WINDOW_ALIGN, where one dispatch would read and
    write a slot, where others than kernels and copies need the part (outputs, the host, bodies), within bodies, and
    where more bytes would be needed at one time."""
    parts = _Parts(graph, items)
    parts.report(placed)
    return parts.items()


class _Parts:
    def __init__(self, graph: Graph, items: Sequence[Item]) -> None:
        self._items, self._early = items, early_variables(graph)
        self._roots = alias_roots(items)
        self._within: dict[Value, tuple[Value, Dim]] = {}
        self._dropped: dict[int, str] = {}
        self._into: dict[Value, list[int]] = {}
        for i, item in enumerate(items):
            if isinstance(item.step, CopyBytes):
                self._into.setdefault(self._root(item.step.target), []).append(i)
        if not self._into:
            return
        self._tensors = touched(graph, items, self._roots)
        self._live = Live(self._tensors.values(), len(items))
        cuts: dict[Value, list[int]] = {}
        for i, *more in self._into.values():
            if not more:
                cuts.setdefault(self._root(self._copy(i).source), []).append(i)
        for source, copies in cuts.items():
            self._together(self._find(source)[0], copies, self._read_there)
        for target, copies in self._into.items():
            if len(copies) > 1 and self._filled(target, copies):
                begins = {i: t.first for i in copies if (t := self._tensors.get(self._root(self._copy(i).source)))}
                self._together(target, sorted(begins, key=lambda i: -begins[i]), self._write_there)

    def items(self) -> list[Item]:
        """The items that are left, behind the parts."""
        parts = [Item(Alias(v, *self._find(v)), -1) for v in self._within]
        return [*parts, *(item for i, item in enumerate(self._items) if i not in self._dropped)]

    def report(self, placed: list[Placed]) -> None:
        """Says which lines copy nothing any more."""
        steps = enumerate(self._items)
        left = Counter(x.node for i, x in steps if isinstance(x.step, CopyBytes) and i not in self._dropped)
        for i, reason in self._dropped.items():
            node = self._items[i].node
            if placed[node].how == "copy" and not left[node]:
                placed[node] = replace(placed[node], how="alias", reason=reason)

    def _together(self, whole: Value, copies: Sequence[int], join: Callable[[int], None]) -> None:
        """Makes all the copies parts of `whole` that may be; or, where that needs more bytes, one by one those that do
        not."""
        if whole not in self._tensors or self._try(whole, copies, join) or len(copies) == 1:
            return
        for i in copies:
            self._try(whole, [i], join)

    def _try(self, whole: Value, copies: Sequence[int], join: Callable[[int], None]) -> bool:
        before, dropped, within = self._tensors[whole].copy(), len(self._dropped), len(self._within)
        for i in copies:
            join(i)
        if self._live.fits():
            self._live.keep()
            return True
        self._live.undo()
        self._tensors[whole] = before
        for _ in range(len(self._dropped) - dropped):
            self._dropped.popitem()
        for _ in range(len(self._within) - within):
            self._within.popitem()
        return False

    def _read_there(self, i: int) -> None:
        """Makes what copy i makes a part of its source, if it may be."""
        step = self._copy(i)
        made = self._root(step.target)
        within, start = self._find(self._root(step.source))
        if made in self._within or made not in self._tensors or step.target_offset != 0:
            return
        part, whole, at = self._tensors[made], self._tensors[within], D.add(start, step.source_offset)
        kept = not whole.writes or whole.writes[-1] < i
        changed = part.writes[1:]
        alone = part.writes[0] == i and (not changed or (not whole.fed and whole.last < changed[0]))
        if not part.pinned and kept and alone and step.size == _bytes(made) and _fits(step.size, at):
            self._join(i, made, within, at, f"a view of {step.source.name!r}")

    def _filled(self, target: Value, copies: Sequence[int]) -> bool:
        """Whether the copies, of one node, fill a tensor from its first byte on, one after another, and nothing else
        writes it before."""
        t = self._tensors.get(target)
        if t is None or t.fed or target in self._within or t.writes[: len(copies)] != list(copies):
            return False
        end: Dim = 0
        for i in copies:
            if self._copy(i).target_offset != end:
                return False
            end = D.add(end, self._copy(i).size)
        return len({self._items[i].node for i in copies}) == 1

    def _write_there(self, i: int) -> None:
        """Makes the source of copy i a part of its target, if it may be."""
        step = self._copy(i)
        source, target = self._root(step.source), self._root(step.target)
        if source in self._within or step.source_offset != 0 or step.size != _bytes(source):
            return
        part, whole, at = self._tensors[source], self._tensors[target], step.target_offset
        late = (D.variables(whole.size) | D.variables(at)) - self._early - D.variables(part.size)
        made = not part.fed and not part.pinned and part.writes and part.writes[-1] < i
        changed = whole.writes[bisect_right(whole.writes, self._into[target][-1]) :]
        if made and not late and not (changed and changed[0] <= part.last) and _fits(step.size, at):
            self._join(i, source, target, at, "its inputs are written where it has them")

    def _join(self, i: int, value: Value, root: Value, at: Dim, reason: str) -> None:
        if self._apart(i, value, root):
            part, whole = self._tensors[value], self._tensors[root]
            self._live.join(part, whole)
            whole.take(part, i)
            self._within[value] = (root, at)
            self._dropped[i] = reason

    def _apart(self, copy: int, part: Value, root: Value) -> bool:
        """Whether no item but the copy needs both: WebGPU refuses a buffer that is bound read-only and writable in one
        dispatch, and a copy within one."""
        a, b = self._tensors[part], self._tensors[root]
        fewer = min((a, b), key=lambda t: len(t.reads) + len(t.writes))
        for i in (*fewer.reads, *fewer.writes):
            if i == copy or i in self._dropped:
                continue
            step = self._items[i].step
            inside = [v for v in (*reads(step), *writes(step)) if self._find(self._root(v))[0] in (part, root)]
            written = [v for v in writes(step) if v in inside]
            if written and len(inside) > 1:
                return False
        return True

    def _copy(self, i: int) -> CopyBytes:
        step = self._items[i].step
        if not isinstance(step, CopyBytes):
            raise AssertionError(f"item {i} is no copy")
        return step

    def _root(self, value: Value) -> Value:
        return self._roots.get(value, value)

    def _find(self, root: Value) -> tuple[Value, Dim]:
        """The tensor whose slot it is in, and from which byte on."""
        at: Dim = 0
        while root in self._within:
            root, more = self._within[root]
            at = D.add(at, more)
        return root, at


def _bytes(value: Value) -> Dim:
    return nbytes(value.dtype, value.elements)


def _fits(size: Dim, at: Dim) -> bool:
    """Whether devices bind a part of `size` bytes from `at` on, at all sizes."""
    if D.mod(at, WINDOW_ALIGN) != 0 or size == 0:
        return False
    return isinstance(size, int) or at == 0 or D.at_least(D.mul(size, MOST_TIMES), at)
