"""The sizes of one run: variables bound from what is fed and made on the host, and what the plan computes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from webrt.dims import DimRef, evaluate, resolve
from webrt.errors import InputError, ShapeError
from webrt.plan import Copy, Dispatch, Plan, Step, ValueInfo

Refuse: TypeAlias = Callable[[str], Exception]
Key: TypeAlias = tuple[tuple[str, int], ...]
MAX_CACHED = 16
MAX_TEXT_DEPTH = 6
FAR = 1 << 52
"""Beyond all tensors, with room for what is computed of it below 2**53."""


@dataclass(frozen=True)
class _Claim:
    """A size that must equal `ref`, which was not known when the value came."""

    ref: DimRef
    size: int
    what: str
    refuse: Refuse


class Sizes:
    """Binds variables and evaluates the plan's program. `values` has None for what is not known yet."""

    def __init__(
        self, plan: Plan, cache: dict[Key, list[int | None]] | None = None, around: Sizes | None = None
    ) -> None:
        """`cache` keeps evaluations from run to run; of a sub-plan's sizes those `around` are known."""
        self.plan = plan
        self._cache = {} if cache is None else cache
        self.known: dict[str, int] = {} if around is None else dict(around.known)
        self.values: list[int | None] = []
        self._owners: dict[str, str] = {} if around is None else dict(around._owners)
        self._claims: list[_Claim] = []

    def bind(self, info: ValueInfo, shape: Sequence[int], refuse: Refuse) -> None:
        """Binds the variables of a value's shape. Raises what `refuse` makes where it is not the declared shape."""
        if info.shape is None:
            return
        if len(shape) != len(info.shape):
            raise refuse(f"rank {len(shape)} was given ({list(shape)})")
        for axis, (ref, size) in enumerate(zip(info.shape, shape)):
            name = self._variable(ref)
            what = f"axis {axis} has size {size} ({list(shape)} was given)"
            if name is None:
                self._claims.append(_Claim(ref, size, what, refuse))
            elif self.known.setdefault(name, size) != size:
                raise refuse(f"{what}, but {name} is {self.known[name]} by {self._owners.get(name, 'a step before')!r}")
            else:
                self._owners.setdefault(name, info.name)

    def bind_elements(self, info: ValueInfo, elements: Sequence[int], refuse: Refuse) -> None:
        """Binds `in:NAME[k]` for a value whose integers are sizes; for bounds of slices (the plan's `meta["clamped"]`)
        no farther than FAR."""
        if len(elements) != info.elements:
            raise refuse(f"{info.elements} elements are expected, {len(elements)} were given")
        far = FAR if info.name in self.plan.meta.get("clamped", ()) else None
        for k, value in enumerate(elements):
            self.known[f"in:{info.name}[{k}]"] = value if far is None else max(-far, min(value, far))

    def settle(self) -> Key:
        """Evaluates the program; checks what was claimed of sizes. Returns a key: equal keys have equal `values`.

        Raises InputError where sizes do not fit together.
        """
        key = tuple(self.known.items())
        if key not in self._cache:
            while len(self._cache) >= MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = self._evaluate()
        self.values = self._cache[key]
        waiting = []
        for claim in self._claims:
            expected = resolve(claim.ref, self.values)
            if expected is None:
                waiting.append(claim)
            elif expected != claim.size:
                raise claim.refuse(f"{claim.what}, {expected} is expected")
        self._claims = waiting
        self._check(self.values)
        return key

    def _check(self, values: Sequence[int | None]) -> None:
        for ref, message in self.plan.checks:
            if resolve(ref, values) == 0:
                raise InputError(message + self._numbers(ref, message, values))

    def _numbers(self, ref: DimRef, message: str, values: Sequence[int | None]) -> str:
        """The numbers of what does not hold: those compared, and the elements of inputs that the message names."""
        compared = max(self._comparisons(ref), key=len, default=[])
        numbers = " and ".join(str(resolve(x, values)) for x in compared)
        parts = [f"{numbers} here"] if compared else []
        parts += [f"{k} = {v}" for k, v in self.known.items() if k.startswith("in:") and k in message]
        return f" ({'; '.join(parts)})" if parts else ""

    def _comparisons(self, ref: DimRef, depth: int = 0) -> list[list[DimRef]]:
        """What the comparisons in a condition compare, in their order, but for numbers that the plan has itself."""
        if isinstance(ref, int) or depth == MAX_TEXT_DEPTH:
            return []
        op, *args = self.plan.dims[ref[0]]
        refs: list[DimRef] = [(x[0],) if isinstance(x, list) else x for x in args]
        if op in ("max", "min"):
            return [c for x in refs for c in self._comparisons(x, depth + 1)]
        if op == "select":
            return [c[::-1] for c in self._comparisons(refs[0], depth + 1)]
        divided = refs[0] if op == "eq" else 0
        if isinstance(divided, tuple) and self.plan.dims[divided[0]][0] == "mod":
            refs = [(x[0],) if isinstance(x, list) else x for x in self.plan.dims[divided[0]][1:]]
        return [[x for x in refs if isinstance(x, tuple)]] if op in ("eq", "lt") else []

    def _evaluate(self) -> list[int | None]:
        failed: list[ShapeError] = []
        values = evaluate(self.plan.dims, self.known, failed)
        if failed:
            self._check(values)
            given = ", ".join(f"{k}={v}" for k, v in self.known.items())
            raise InputError(f"{self._first_user(values)}these sizes do not fit the model ({given}): {failed[0].what}")
        return values

    def _first_user(self, values: Sequence[int | None]) -> str:
        """The first node that needs the first size that cannot be computed: "Tile 'tile': ", or nothing."""
        lost: set[int] = set()
        for k, (op, *args) in enumerate(self.plan.dims):
            used = [a[0] for a in args if isinstance(a, list)]
            computable = args[0] in self.known if op == "var" else None not in [values[j] for j in used]
            if lost & {*used} or (not lost and values[k] is None and computable):
                lost.add(k)
        for step in self.plan.steps:
            if 0 <= step.node < len(self.plan.placement) and lost & {
                ref[0] for ref in _refs(step) if isinstance(ref, tuple)
            }:
                placed = self.plan.placement[step.node]
                return f"{placed.op} {placed.node!r}: "
        return ""

    def shape(self, info: ValueInfo) -> tuple[int, ...]:
        """A value's shape. Raises ShapeError while a size of it is not known."""
        sizes = [resolve(ref, self.values) for ref in info.shape or ()]
        if info.shape is None or any(s is None or s < 0 for s in sizes):
            raise ShapeError(f"the shape of {info.name!r} is {sizes} here; webrt cannot hold it")
        return tuple(s for s in sizes if s is not None)

    def _variable(self, ref: DimRef) -> str | None:
        """The name where a size is a plain variable that no value has bound yet, or that a shape bound."""
        if isinstance(ref, int):
            return None
        op, *args = self.plan.dims[ref[0]]
        return str(args[0]) if op == "var" and not str(args[0]).startswith("in:") else None


def _refs(step: Step) -> Sequence[DimRef]:
    """The sizes of a dispatch or a copy."""
    if isinstance(step, Copy):
        return step.source_offset, step.target_offset, step.size
    return (
        [*step.params, *(g for _, *groups in step.alternatives for g in groups)] if isinstance(step, Dispatch) else ()
    )


def size_text(program: Sequence[Sequence[Any]], ref: DimRef, depth: int = 0) -> int | str:
    """A size for people: an int, a variable's name, or the expression (with … for its deeper parts)."""
    if isinstance(ref, int):
        return ref
    op, *args = program[ref[0]]
    if op == "var":
        return str(args[0])
    if depth == MAX_TEXT_DEPTH:
        return "…"
    operands = [str(size_text(program, (a[0],) if isinstance(a, list) else a, depth + 1)) for a in args]
    signs = {"add": " + ", "sub": " - ", "mul": "*", "floordiv": " // ", "mod": " % "}
    if op in signs:
        text = signs[op].join(operands)
        return f"({text})" if depth else text
    return f"{op}({', '.join(operands)})"


def declared(plan: Plan, info: ValueInfo) -> str:
    """A value for people: `x: float32[batch, 3]`."""
    if info.shape is None:
        return f"{info.name}: {info.dtype or 'no tensor'}"
    return f"{info.name}: {info.dtype}[{', '.join(str(size_text(plan.dims, d)) for d in info.shape)}]"
