"""The size of a slot and what it holds, as `webrt inspect` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from webrt.dims import DimRef
from webrt.plan import ALIGN, Plan
from webrt.runtime.resolve import node_name, written
from webrt.runtime.sizes import size_text

Program: TypeAlias = Sequence[Sequence[Any]]


def held(plan: Plan) -> list[list[str]]:
    """What each slot of a plan (or of a sub-plan in it) holds, one after the other: inputs by their names, and what
    nodes make by the nodes."""
    found: list[dict[str, None]] = [{} for _ in plan.slots]
    for v in plan.inputs:
        if v.place is not None and v.place[0] == "s":
            found[v.place[1]][f"input {v.name!r}"] = None
    for step in plan.steps:
        for kind, index in written(plan, step):
            if kind == "s":
                found[index][node_name(plan, step)] = None
    return [list(names) for names in found]


def slot_bytes(program: Program, ref: DimRef) -> int | str:
    """A slot's size for people: without the rounding up to multiples of 16, which every slot has, and of several that
    are multiples of the same size only the largest."""
    if isinstance(ref, int):
        return ref
    largest: dict[DimRef, int] = {}
    for one in _operands(program, ref):
        factor, rest = _product(program, one)
        largest[rest] = max(factor, largest.get(rest, 0))
    if len(largest) > 1 and largest.get(1, 0) <= ALIGN:
        largest.pop(1, None)
    texts = [_text(program, factor, rest) for rest, factor in largest.items()]
    return texts[0] if len(texts) == 1 else f"the largest of {', '.join(texts)}"


def _text(program: Program, factor: int, rest: DimRef) -> str:
    if isinstance(rest, int):
        return str(factor * rest)
    return f"{factor}*{size_text(program, rest, 1)}" if factor != 1 else str(size_text(program, rest))


def _operands(program: Program, ref: DimRef) -> Iterator[DimRef]:
    """What a size is the largest of; itself where it is no maximum."""
    op, operands = _taken(program, ref)
    if op == "max":
        for operand in operands:
            yield from _operands(program, operand)
    else:
        yield ref


def _product(program: Program, ref: DimRef) -> tuple[int, DimRef]:
    """A size as a number times another size, which is 1 where it is only a number."""
    if isinstance(ref, int):
        return ref, 1
    op, operands = _taken(program, ref)
    numbers = [x for x in operands if isinstance(x, int)]
    if op != "mul" or len(numbers) != 1:
        return 1, ref
    (other,) = (x for x in operands if not isinstance(x, int))
    exact = _before_rounding(program, other) if numbers[0] == ALIGN else None
    factor, rest = _product(program, other if exact is None else exact)
    return factor if exact is not None else factor * numbers[0], rest


def _before_rounding(program: Program, ref: DimRef) -> DimRef | None:
    """x of (15 + x) // 16, None where it is something else."""
    op, operands = _taken(program, ref)
    if op != "floordiv" or operands[1] != ALIGN:
        return None
    op, operands = _taken(program, operands[0])
    if op != "add" or ALIGN - 1 not in operands:
        return None
    return operands[1] if operands[0] == ALIGN - 1 else operands[0]


def _taken(program: Program, ref: DimRef) -> tuple[str, list[DimRef]]:
    """The operator that makes a size and what it takes; "" for a number and for a variable."""
    if isinstance(ref, int) or program[ref[0]][0] == "var":
        return "", []
    op, *args = program[ref[0]]
    return op, [(a[0],) if isinstance(a, list) else a for a in args]
