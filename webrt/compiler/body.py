"""The subgraph of an If, a Loop or a Scan as a graph of its own, which a plan runs as steps within a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webrt.ir import Graph, Node, Value

if TYPE_CHECKING:
    from webrt.compiler.lower import Item
    from webrt.compiler.memory import Memory
    from webrt.compiler.partition import Placed


@dataclass(eq=False)
class Body:
    """A subgraph whose values have names of their own, which begin with `label`. Its graph's inputs stand for values
    of the graph around it:

    `captured`: (value there, input of the same name here). `repeats`: a loop's. `state`: (first value there, input),
    each with the output at the same place behind `again`. `elements`: (sequence there, input, whether the last element
    comes first). `number`: the iteration's number where it decides sizes. `again`: the first output tells whether to go
    on. `lines`: of each further output, whether the last iteration's comes first. `wanted`: names of values whose
    elements a shape function asked for in vain. `placed`, `items` and `memory` are what the later stages make of it."""

    label: str
    graph: Graph
    captured: list[tuple[Value, Value]]
    repeats: bool = False
    state: list[tuple[Value, Value]] = field(default_factory=list)
    elements: list[tuple[Value, Value, bool]] = field(default_factory=list)
    number: Value | None = None
    again: bool = False
    lines: list[bool] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)
    placed: list[Placed] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    memory: Memory | None = None

    @property
    def carried(self) -> list[Value]:
        """The outputs that are the next iteration's state."""
        return self.graph.outputs[self.again : self.again + len(self.state)]

    @property
    def ends(self) -> list[Value]:
        """What the executor copies, or reads to decide whether to go on; nothing in a branch."""
        if not self.repeats:
            return []
        return [v for _, v in self.state] + [v for _, v, _ in self.elements] + self.graph.outputs

    def keep_used(self) -> None:
        """Forgets captured values that nothing reads."""
        used = {v for n in self.graph.nodes for v in (*n.given(), *n.outer)} | set(self.graph.outputs)
        self.captured = [(a, b) for a, b in self.captured if b in used]
        inner = [*self.state, *self.captured]
        self.graph.inputs = [self.number] if self.number is not None else []
        self.graph.inputs += [b for _, b in inner] + [b for _, b, _ in self.elements]


@dataclass(frozen=True)
class Control:
    """A node with the bodies that are run for it: both branches of an If, or what a Loop or a Scan repeats."""

    node: Node
    bodies: tuple[Body, ...]

    @property
    def operands(self) -> list[Value]:
        """The values around it that the step needs: those that decide, and those that bodies read."""
        out: list[Value] = list(self.deciding)
        for b in self.bodies:
            out += [a for a, _ in b.state] + [a for a, _, _ in b.elements] + [a for a, _ in b.captured]
        return list(dict.fromkeys(out))

    @property
    def moved(self) -> list[Value]:
        """The values around it that are copied into bodies: first states and sequences."""
        return [v for b in self.bodies for v in (*(a for a, _ in b.state), *(a for a, _, _ in b.elements))]

    @property
    def deciding(self) -> list[Value]:
        """The condition of an If; the trip count and the condition of a Loop, as far as they are given."""
        count = {"If": 1, "Loop": 2}.get(self.node.op_type, 0)
        return [v for v in self.node.inputs[:count] if v is not None]


def every(placed: Sequence[Placed]) -> Iterator[Placed]:
    """The placed nodes with those of all bodies."""
    for p in placed:
        yield p
        for step in p.steps:
            if isinstance(step, Control):
                for b in step.bodies:
                    yield from every(b.placed)
