"""The placed nodes as the extended passes see them: line by line, with who makes and who reads each value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from webrt.compiler.lower import reads
from webrt.compiler.partition import Placed
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Node, Value
from webrt.lowering import Builder, Elementwise, find
from webrt.target import Target


@dataclass
class Lines:
    """The placed nodes, and who makes and who reads their values. `kept` are values that must be stored."""

    placed: list[Placed]
    kept: set[Value]
    target: Target

    def __post_init__(self) -> None:
        self.rebuild(self.placed)

    def rebuild(self, placed: list[Placed]) -> None:
        """These are the lines now."""
        self.placed = placed
        self.maker: dict[Value, int] = {}
        self.readers: dict[Value, set[int]] = {}
        for i, p in enumerate(self.placed):
            self.maker |= {v: i for v in p.node.outputs if v is not None}
            for v in [*p.node.given(), *p.node.outer] if p.how != "folded" else ():
                self.readers.setdefault(v, set()).add(i)

    def formula(self, i: int) -> Elementwise | None:
        """What line i computes, where that is one elementwise kernel and no more."""
        p = self.placed[i]
        outputs = [v for v in p.node.outputs if v is not None]
        if p.how != "kernel" or len(p.elementwise) != 1 or len(p.steps) != 1 or len(outputs) != 1:
            return None
        return p.elementwise[0] if p.elementwise[0].out is outputs[0] else None

    def only_for(self, v: Value, users: Iterable[int]) -> bool:
        """Whether nobody but the lines `users` reads the value."""
        return v not in self.kept and self.readers.get(v, set()) <= set(users)

    def made_by(self, v: Value, *ops: str) -> Node | None:
        """The node of ONNX's own domain that makes the value by a kernel, where it is one of these operators."""
        p = self.placed[self.maker[v]] if v in self.maker else None
        return p.node if p is not None and p.how == "kernel" and p.node.op in ops else None

    def only_reader(self, v: Value, *, alias: bool = False) -> Node | None:
        """The one node that reads the value, where a kernel computes it (`alias`: or where it is one)."""
        users = self.readers.get(v, set())
        if v in self.kept or len(users) != 1:
            return None
        (p,) = (self.placed[i] for i in users)
        return p.node if p.how == "kernel" or (alias and p.how == "alias") else None

    def merge(self, last: int, others: Sequence[int], builder: Builder, node: Node | None = None) -> None:
        """Lines `others` are computed by line `last`, whose steps are now the builder's, and its node this one."""
        root, parts = self.placed[last], [self.placed[i] for i in others]
        checks = [c for p in [*parts, root] for c in p.checks] + builder.checks
        reason = f"with {', '.join(_title(p.node) for p in parts)}"
        elementwise = builder.elementwise if node is not None else []
        node = node or root.node
        computes = [n for p in [*parts, root] for n in (*p.parts, p.node) if n is not node]
        once = list(dict.fromkeys(checks))
        self.placed[last] = Placed(node, "kernel", reason, builder.steps, once, elementwise, computes)
        for i in others:
            self.placed[i] = Placed(self.placed[i].node, "fused", f"computed by {_title(node)}")
        for p in [*parts, root]:
            for v in [*p.node.given(), *p.node.outer]:
                self.readers[v] -= {last, *others}
        made = {v for p in [*parts, root] for v in p.node.outputs if v is not None}
        for v in {v for step in builder.steps for v in reads(step)} - made:
            self.readers.setdefault(v, set()).add(last)

    def become(self, last: int, others: Sequence[int], node: Node, steps: int | None = None) -> None:
        """Lines `others` and `last` are this one node, where its operator takes it (in so many steps, if given)."""
        op, builder = find(node.domain, node.op_type, node.opset), Builder(self.target, f"{last}.{node.op_type}")
        try:
            if op is not None:
                op.lower(node, builder)
        except (UnsupportedOp, UnsupportedType):
            return
        if op is not None and (steps is None or len(builder.steps) == steps):
            self.merge(last, others, builder, node)

    def reading(self, node: Node, builder: Builder) -> Node:
        """The node with what the builder's steps read as its inputs."""
        found = dict.fromkeys(v for step in builder.steps for v in reads(step))
        return replace(node, inputs=list(found))

    def drop_unread(self) -> None:
        """Lines on the device whose values nobody reads any more need no kernel."""
        for i in reversed(range(len(self.placed))):
            p = self.placed[i]
            outputs = [v for v in p.node.outputs if v is not None]
            if p.how not in ("kernel", "copy", "alias") or any(v in self.kept or self.readers.get(v) for v in outputs):
                continue
            self.placed[i] = Placed(p.node, "fused", "what reads it reads its inputs instead", checks=p.checks)
            for v in p.node.given():
                self.readers[v].discard(i)


def _title(node: Node) -> str:
    return f"{node.op} {node.name!r}" if node.name else node.op
