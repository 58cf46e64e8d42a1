"""From placed nodes to one list of steps over values, with sizes turned into tensors where a kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.compiler.body import Body, Control
from webrt.compiler.partition import Placed
from webrt.dims import Dim
from webrt.errors import UnsupportedType
from webrt.ir import Graph, Node, Value
from webrt.lowering import Alias, Builder, CopyBytes, Launch, Lowered, ReadBack

CHUNK = 64


@dataclass(frozen=True)
class HostNode:
    """A node that the host provider runs."""

    node: Node


Step: TypeAlias = Lowered | HostNode | Control


@dataclass(frozen=True)
class Item:
    """A step with the index of the node (of the placement report) that it belongs to."""

    step: Step
    node: int


def lower(placed: Sequence[Placed], ends: Sequence[Value] = ()) -> list[Item]:
    """The steps of all nodes, in order. A tensor of sizes that a device step reads is written before its first use, one
    of `ends` at last."""
    items: list[Item] = []
    written: set[Value] = set()
    for index, p in enumerate(placed):
        if p.how == "host":
            items.append(Item(HostNode(p.node), index))
            continue
        for step in p.steps:
            if isinstance(step, Control):
                for body in step.bodies:
                    _lower_body(body)
            for value in step.moved if isinstance(step, Control) else reads(step):
                if is_sizes(value) and value not in written:
                    written.add(value)
                    items += [Item(s, index) for s in write_sizes(value)]
            items.append(Item(step, index))
    for value in ends:
        if is_sizes(value) and value not in written:
            written.add(value)
            items += [Item(s, len(placed) - 1) for s in write_sizes(value)]
    return items


def _lower_body(body: Body) -> None:
    """The steps of a body. A state that takes another's place is copied first: the executor copies one by one."""
    body.items = lower(body.placed, body.graph.outputs if body.repeats else ())
    roots = alias_roots(body.items)
    inner = [b for _, b in body.state]
    for k, out in enumerate(body.carried):
        root = roots.get(out, out)
        if root in inner and root is not inner[k]:
            copy = Value(f"{out.name}.moved", out.dtype, out.shape)
            size = D.mul(D.ceildiv(D.mul(out.elements, out.dtype.bits if out.dtype else 0), 32), 4)
            body.items.append(Item(CopyBytes(out, 0, copy, 0, size), len(body.placed) - 1))
            body.graph.outputs[body.again + k] = copy


def alias_roots(items: Sequence[Item]) -> dict[Value, Value]:
    """Of each value that is another's bytes, the value that these bytes were made for."""
    roots: dict[Value, Value] = {}
    for item in items:
        if isinstance(item.step, Alias):
            roots[item.step.out] = roots.get(item.step.source, item.step.source)
    return roots


def part_starts(items: Sequence[Item]) -> dict[Value, Dim]:
    """Of each value that is a part of another's bytes, the byte of its root (`alias_roots`) that it starts at."""
    starts: dict[Value, Dim] = {}
    for item in items:
        if isinstance(item.step, Alias) and (item.step.start is not None or item.step.source in starts):
            starts[item.step.out] = D.add(starts.get(item.step.source, 0), item.step.start or 0)
    return starts


def last_uses(graph: Graph, items: Sequence[Item], roots: Mapping[Value, Value]) -> dict[Value, int]:
    """The last item that touches the bytes of each root; those of the graph's outputs are needed after all items."""
    last: dict[Value, int] = {}
    for i, item in enumerate(items):
        for value in (*reads(item.step), *writes(item.step)):
            last[roots.get(value, value)] = i
    for value in graph.outputs:
        last[roots.get(value, value)] = len(items)
    return last


def reads(step: Step) -> list[Value]:
    """The values that a step reads."""
    if isinstance(step, Launch):
        return [b.value for b in step.bindings if b.access == "r"]
    if isinstance(step, HostNode):
        return [*step.node.given(), *step.node.outer]
    if isinstance(step, Control):
        return step.operands
    return [step.source]


def writes(step: Step) -> list[Value]:
    """The values that a step writes."""
    if isinstance(step, Launch):
        return [b.value for b in step.bindings if b.access == "w"]
    if isinstance(step, (HostNode, Control)):
        return [v for v in step.node.outputs if v is not None]
    if isinstance(step, ReadBack):
        return []
    return [step.target if isinstance(step, CopyBytes) else step.out]


def is_sizes(value: Value) -> bool:
    """Whether nothing computes the value: its elements are Dims (constants are not counted)."""
    return value.contents is not None and value.const is None


def write_sizes(value: Value) -> list[Lowered]:
    """Launches that write the Dims of `value.contents` into its tensor, CHUNK elements each."""
    if value.contents is None or value.dtype not in (T.I64, T.I32, T.BOOL):
        raise UnsupportedType(f"{value.name!r} cannot be written from sizes")
    flat: list[Dim] = list(value.contents.flat)
    wide = value.dtype == T.I64
    builder = Builder(prefix=value.name)
    if all(isinstance(d, int) for d in flat):
        numpy_type = {T.I64: np.int64, T.I32: np.int32, T.BOOL: np.bool_}[value.dtype]
        value.const = value.contents.astype(numpy_type)
        return []
    if value.dtype == T.BOOL and len(flat) > CHUNK:
        raise UnsupportedType(f"{value.name!r} holds more than {CHUNK} truth values that depend on sizes")
    if len(flat) <= CHUNK:
        _write_chunk(builder, value, flat, wide)
        return builder.steps
    for start in range(0, len(flat), CHUNK):
        part = builder.temp(value.dtype, (min(CHUNK, len(flat) - start),))
        _write_chunk(builder, part, flat[start : start + CHUNK], wide)
        builder.copy(part, 0, value, start, min(CHUNK, len(flat) - start))
    return builder.steps


def _write_chunk(builder: Builder, out: Value, flat: Sequence[Dim], wide: bool) -> None:
    count = 1 << (len(flat) - 1).bit_length()
    padded = [*flat, *[0] * (count - len(flat))]
    names = [f"v{i}" for i in range(count)]
    params: dict[str, Dim | float] = {n: D.mod(d, 1 << 32) if wide else d for n, d in zip(names, padded, strict=True)}
    values = f"array<u32, {count}>({', '.join(f'p.{n}' for n in names)})"
    if not wide:
        text = f"var low = {values};\nreturn " + ("low[i] != 0u;" if out.dtype == T.BOOL else "bitcast<i32>(low[i]);")
    else:
        params.update({f"h{i}": D.floordiv(d, 1 << 32) for i, d in enumerate(padded)})
        high = f"array<u32, {count}>({', '.join(f'p.h{i}' for i in range(count))})"
        text = f"var low = {values};\nvar high = {high};\nreturn vec2<u32>(low[i], high[i]);"
    builder.map(out, text, params=params, name="sizes")
