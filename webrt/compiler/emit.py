"""From steps over values and their places to a Plan: size references, parameter blocks, one kernel per text."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from webrt import dims as D
from webrt import plan as P
from webrt.compiler.body import Body, Control
from webrt.compiler.clamped import clamped
from webrt.compiler.export import tensor_of
from webrt.compiler.infer import located, may_be_structural
from webrt.compiler.lower import HostNode, Item, is_sizes
from webrt.compiler.memory import Memory, nbytes, slot_size
from webrt.compiler.partition import Placed
from webrt.compiler.splice import opsets_of
from webrt.compiler.work import work_of
from webrt.dims import Dim, DimRef, DimTable, var
from webrt.errors import ShapeError
from webrt.ir import Graph, Node, Value
from webrt.lowering import Binding, CopyBytes, Launch, ReadBack
from webrt.subplans import Branch, Loop, SubPlan, operands
from webrt.target import Target

PARAMS_ALIGN = 256


def emit(
    graph: Graph, placed: Sequence[Placed], items: Sequence[Item], memory: Memory, target: Target, structural: set[str],
    meta: Mapping[str, Any],
) -> P.Plan:  # fmt: skip
    """The finished plan. `meta` is added to the model's own, and the inputs that are only bounds of slices."""
    bounds = clamped(graph, structural)
    meta = {**meta, "clamped": bounds} if bounds else meta
    emitter = _Emitter(graph, placed, memory, structural, _Shared(list(memory.constants)))
    return emitter.plan(items, target, meta)


@dataclass
class _Shared:
    """What a plan and its sub-plans have together."""

    constants: list[Value]
    kernels: dict[str, int] = field(default_factory=dict)
    kernel_list: list[P.Kernel] = field(default_factory=list)
    lines: list[P.PlacedNode] = field(default_factory=list)


class _Emitter:
    """Of a plan, or of a sub-plan, whose values have names that begin with `label`."""

    def __init__(
        self, graph: Graph, placed: Sequence[Placed], memory: Memory, structural: set[str], shared: _Shared,
        label: str | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.placed, self.memory, self.shared, self.label = graph, placed, memory, shared, label
        self.structural = structural if label is None else {n for n in structural if n.startswith(label)}
        self.every_structural = structural
        self.table = DimTable()
        self.blocks: dict[tuple[DimRef, ...], int] = {}
        self.params_size = 0
        self.values: dict[str, P.ValueInfo] = {}
        self.first_line = len(shared.lines)
        shared.lines += [_report(p, memory) for p in placed]
        self.outside: set[str] = set()
        self.needs: dict[int, list[DimRef]] = {}

    def tables(self, items: Sequence[Item]) -> tuple[SubPlan, list[tuple[Item, P.Step]]]:
        """What a plan and a sub-plan both have, and its steps with what they were made of."""
        inputs = tuple(self._info(v, is_input=True) for v in self.graph.inputs)
        pairs = [(item, s) for item in items for s in self._step(item)]
        steps = tuple(s for _, s in pairs)
        outputs = tuple(self._info(v) for v in self.graph.outputs)
        checks = tuple((self.table.ref(d), m) for p in self.placed for d, m in p.checks)
        sizes = zip(self.memory.slots, self.memory.labels, self.memory.after, strict=True)
        slots = tuple(P.Slot(self.table.ref(size), label, self.table.ref(after)) for size, label, after in sizes)
        self._refuse_unbound(inputs, steps, slots)
        program, size = self.table.program, self.params_size
        return SubPlan(program, inputs, outputs, self.values, slots, steps, size, checks), pairs

    def plan(self, items: Sequence[Item], target: Target, meta: Mapping[str, Any]) -> P.Plan:
        tables, pairs = self.tables(items)
        work = tuple(work_of(pairs, self.placed, self.table.ref))
        arrays = [_bytes(v) for v in self.shared.constants]
        offsets = P.layout_constants([len(a) for a in arrays])
        constants = tuple(
            P.Constant(v.name, str(v.dtype), v.static_shape or (), len(a), o)
            for v, a, o in zip(self.shared.constants, arrays, offsets, strict=True)
        )
        return P.Plan(
            **tables.__dict__, kernels=tuple(self.shared.kernel_list), constants=constants,
            placement=tuple(self.shared.lines), work=work, target=target.to_json(),
            meta={**self.graph.meta, "opsets": self.graph.opsets, **meta}, data=lambda i: arrays[i],
        )  # fmt: skip

    def _refuse_unbound(self, inputs: Sequence[P.ValueInfo], steps: Sequence[P.Step], slots: Sequence[P.Slot]) -> None:
        """Raises ShapeError where a step's sizes depend on a variable that neither an input nor a step before gives."""
        known = _Known(self.table.program)
        if self.label is not None:
            self.outside |= {n for n in known.missing() if not n.removeprefix("in:").startswith(self.label)}
            known.add(self.outside)
        known.add({P.DRAWN}.union(*map(self._binds, inputs)))
        for step in steps:
            sizes: list[DimRef] = []
            unread: list[DimRef] = []
            if isinstance(step, (P.HostStep, Branch, Loop)):
                names = (*step.inputs, *step.outer) if isinstance(step, P.HostStep) else operands(step)
                read = [self.values[name] for name in names if name]
                made = [self.values[name] for name in step.outputs if name]
                needed = [d for info in read if info.place is not None for d in info.shape or ()]
                unread = [d for d in (*needed, *self.needs.get(step.node, ())) if not known.has(d)]
                known.add(set[str]().union(*map(self._binds, made)))
                sizes = [d for info in made for d in info.shape or ()]
            elif isinstance(step, P.Read):
                known.add({name for _, name in step.reads})
            elif isinstance(step, P.Dispatch):
                sizes = [*step.params, *step.when, *(x for a in step.alternatives for x in a[1:])]
                sizes += [slots[place[1]].size for place, *_ in step.bindings if place[0] == "s"]
            if unread or not all(map(known.has, sizes)):
                missing = ", ".join(known.missing()[:3])
                error = ShapeError(f"its sizes depend on {missing}, which nothing before it gives; fix the free dims")
                raise located(error, self.placed[step.node - self.first_line].node)

    def _binds(self, info: P.ValueInfo) -> set[str]:
        """The variables that a fed or made value gives."""
        named = [self.table.program[d[0]] for d in info.shape or () if isinstance(d, tuple)]
        return {op[1] for op in named if op[0] == "var"} | {f"in:{info.name}[{k}]" for k in range(info.elements)}

    def _step(self, item: Item) -> list[P.Step]:
        try:
            return self._written(item)
        except ShapeError as e:
            raise located(e, self.placed[item.node].node) from None

    def _written(self, item: Item) -> list[P.Step]:
        step = item.step
        if isinstance(step, Control):
            return [self._control(step, self.first_line + item.node)]
        if isinstance(step, Launch):
            return [self._dispatch(step, self.first_line + item.node)]
        if isinstance(step, CopyBytes):
            source = D.add(step.source_offset, self.memory.start(step.source))
            target = D.add(step.target_offset, self.memory.start(step.target))
            offsets = [self.table.ref(d) for d in (source, target, step.size)]
            return [
                P.Copy(
                    self._place(step.source),
                    offsets[0],
                    self._place(step.target),
                    offsets[1],
                    offsets[2],
                    self.first_line + item.node,
                )
            ]
        if isinstance(step, ReadBack):
            return [P.Read(((self._whole(step.source), step.name),), self.first_line + item.node)]
        return [self._host(step.node, self.first_line + item.node)] if isinstance(step, HostNode) else []

    def _dispatch(self, launch: Launch, node: int) -> P.Dispatch:
        alternatives, when = [], []
        for kernel, groups, condition in launch.alternatives:
            x, y, z = (self.table.ref(g) for g in groups)
            alternatives.append((self._kernel(kernel), x, y, z))
            when.append(self.table.ref(condition))
        if all(condition == 1 for condition in when):
            when = []
        bindings = tuple(map(self._binding, launch.bindings))
        params = tuple(self.table.ref(d) for d in launch.params)
        textures = tuple((i, self.table.ref(_texels(launch.bindings[i]))) for i in launch.textures)
        block = self._block(params)
        return P.Dispatch(tuple(alternatives), bindings, params, block, node, textures=textures, when=tuple(when))

    def _binding(self, b: Binding) -> tuple[P.Place, str, DimRef, DimRef]:
        offset, size = D.add(self.memory.start(b.value), b.offset), b.size or self.memory.bound(b.value)
        return self._place(b.value), b.access, self.table.ref(offset), self.table.ref(size)

    def _block(self, params: tuple[DimRef, ...]) -> int:
        """The offset of a parameter block; dispatches with equal words share one."""
        if params not in self.blocks:
            self.blocks[params] = self.params_size
            self.params_size += -(-max(4 * len(params), 1) // PARAMS_ALIGN) * PARAMS_ALIGN
        return self.blocks[params]

    def _kernel(self, kernel: P.Kernel) -> int:
        if kernel.hash not in self.shared.kernels:
            self.shared.kernels[kernel.hash] = len(self.shared.kernel_list)
            self.shared.kernel_list.append(kernel)
        return self.shared.kernels[kernel.hash]

    def _control(self, step: Control, index: int) -> P.Step:
        node, body = step.node, step.bodies[0]
        for value in [*step.operands, *(v for v in node.outputs if v is not None)]:
            self.values.setdefault(value.name, self._info(value, made_by=node))
        outputs = tuple("" if v is None else v.name for v in node.outputs)
        bodies = tuple(self._body(b, index) for b in step.bodies)
        if node.op == "If":
            return Branch(node.input(0).name, outputs, bodies, index)
        trips, condition = ("" if k not in range(len(node.inputs)) else _name(node.inputs[k]) for k in (0, 1))
        scan = node.op == "Scan"
        own = len(body.state) - (len(node.inputs) - (int(node.attr("num_scan_inputs")) if scan else 2))
        return Loop(
            bodies, "" if scan else trips, "" if scan else condition, _name(body.number),
            tuple((a.name, b.name) for a, b in body.state),
            tuple((a.name, b.name, backward) for a, b, backward in body.elements),
            body.again, ("",) * own + outputs, tuple(body.lines), index,
        )  # fmt: skip

    def _body(self, body: Body, step: int) -> SubPlan:
        if body.memory is None:
            raise AssertionError(f"the body {body.label!r} has no places")
        inner = _Emitter(body.graph, body.placed, body.memory, self.every_structural, self.shared, body.label)
        made, _ = inner.tables(body.items)
        self.needs.setdefault(step, []).extend(self.table.ref(var(name)) for name in sorted(inner.outside))
        return made

    def _host(self, node: Node, index: int) -> P.HostStep:
        for value in [*node.given(), *node.outer, *(v for v in node.outputs if v is not None)]:
            self.values.setdefault(value.name, self._info(value, made_by=node))
        return P.HostStep(
            base64.b64encode(node.to_proto().SerializeToString()).decode(), opsets_of(node, self.graph),
            tuple("" if v is None else v.name for v in node.inputs),
            tuple("" if v is None else v.name for v in node.outputs),
            tuple(v.name for v in node.outer), index,
        )  # fmt: skip

    def _info(self, value: Value, *, is_input: bool = False, made_by: Node | None = None) -> P.ValueInfo:
        shape = None if value.shape is None else tuple(self.table.ref(d) for d in value.shape)
        dtype = str(value.dtype) if value.dtype is not None else ""
        place = self.memory.place(value) and self._whole(value)
        if is_input:
            elements = self._elements(value)
            return P.ValueInfo(value.name, dtype, shape, place if value.const is None else None, elements)
        root = self.memory.root(value)
        if root.const is not None:
            return P.ValueInfo(value.name, dtype, shape, None, 0, self._constant(root))
        if is_sizes(root) and root.name not in self.structural and root.contents is not None:
            return P.ValueInfo(
                value.name, dtype, shape, place, contents=tuple(self.table.ref(d) for d in root.contents.flat)
            )
        made_here = made_by is not None and value in made_by.outputs
        return P.ValueInfo(value.name, dtype, shape, place, self._elements(value) if made_here else 0)

    def _elements(self, value: Value) -> int:
        if value.name not in self.structural or value.const is not None or not may_be_structural(value):
            return 0
        return int(value.elements) if isinstance(value.elements, int) else 0

    def _constant(self, value: Value) -> int:
        if value not in self.shared.constants:
            self.shared.constants.append(value)
        return self.shared.constants.index(value)

    def _whole(self, value: Value) -> P.Place:
        """Of a value that starts where its place does."""
        if self.memory.start(value) != 0:
            raise AssertionError(f"{value!r} is a part of another value")
        return self._place(value)

    def _place(self, value: Value) -> P.Place:
        place = self.memory.place(value)
        if place is None:
            raise AssertionError(f"{value!r} is read on the device but never written there")
        return place


def _texels(b: Binding) -> Dim:
    return D.floordiv(b.size or slot_size(b.value), P.ALIGN)


def _name(value: Value | None) -> str:
    return "" if value is None else value.name


class _Known:
    """Which sizes of a program are known while variables become bound, one after another."""

    def __init__(self, program: Sequence[Sequence[Any]]) -> None:
        self._waiting: dict[str, list[int]] = {}
        self._needs: list[int] = []
        self._users: list[list[int]] = [[] for _ in program]
        ready = []
        for k, (op, *args) in enumerate(program):
            operands = [a[0] for a in args if isinstance(a, list)]
            self._needs.append(1 if op == "var" else len(operands))
            if op == "var":
                self._waiting.setdefault(args[0], []).append(k)
            elif not operands:
                ready.append(k)
            for a in operands:
                self._users[a].append(k)
        self._settle(ready)

    def add(self, variables: set[str]) -> None:
        """These variables are bound now."""
        self._settle([k for name in variables for k in self._waiting.pop(name, ())])

    def has(self, ref: DimRef) -> bool:
        """Whether all that the size depends on is bound."""
        return isinstance(ref, int) or self._needs[ref[0]] <= 0

    def missing(self) -> list[str]:
        """The variables that are not bound."""
        return sorted(self._waiting)

    def _settle(self, ready: list[int]) -> None:
        for k in ready:
            self._needs[k] = 0
        while ready:
            for user in self._users[ready.pop()]:
                self._needs[user] -= 1
                if self._needs[user] == 0:
                    ready.append(user)


def constant_node(value: Value) -> Node:
    """A Constant node that makes a value whose bytes a plan does not carry (strings, complex numbers)."""
    attribute = onnx.helper.make_attribute("value", tensor_of(value))
    return Node("Constant", "", value.name, [], [value], 13, {"value": attribute})


def _bytes(value: Value) -> bytes:
    array = np.ascontiguousarray(np.asarray(value.const))
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _report(p: Placed, memory: Memory) -> P.PlacedNode:
    crossing: int | None = 4 * sum(isinstance(s, ReadBack) for s in p.steps)
    if p.how == "host":
        total: Dim = 0
        for v in [*p.node.given(), *p.node.outputs]:
            if v is not None and memory.place(v) is not None and v.const is None and v.shape is not None:
                total = total + nbytes(v.dtype, v.elements)
        crossing = total if isinstance(total, int) else None
    name = p.node.name or next((v.name for v in p.node.outputs if v is not None), "")
    return P.PlacedNode(name, p.node.op, "cpu" if p.how == "host" else "webgpu", p.how, p.reason, crossing)
