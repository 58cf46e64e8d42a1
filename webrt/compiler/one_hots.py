"""Basic passes that look numbers up in constant tables instead of computing them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses, expand
from webrt.dims import Dim
from webrt.ir import Graph, Node, Value, constant

Array = np.ndarray[Any, Any]

PRODUCTS = ("MatMul", "Gemm")
"""Operators whose left operand may choose rows of the right one."""
FORMULAS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Gelu"}
    | {"Erf", "Exp", "Elu", "Selu", "Softplus", "Softsign", "Mish", "Neg", "Abs", "Sqrt", "Reciprocal"}
)
"""What may be computed of the rows of a table beforehand."""
OPSET = 13
"""Squeeze takes axes as an input, Clip integers."""
MOST = 1 << 20
"""Elements of tables of which more is computed than the rows that a run may look up."""


@dataclass(frozen=True)
class _Choice:
    """Rows of ones and zeros: row r has its one at `places[ids[r] - first]`, none where there is no such place.
    `wraps`: negative ids count from the end. `apart`: ids have an axis of size 1 more at the end."""

    ids: Value
    first: int
    places: Array
    wraps: bool = False
    apart: bool = False


def look_up_one_hots(graph: Graph) -> bool:
    """Cast(x == a range of integers), or OneHot of 0 and 1, times a constant matrix → Gather of the matrix's rows, and
    one of zeros for integers that are not in the range. Numbers that are not finite would make NaN of zeros: such a
    matrix stays."""
    return expand(graph, _looked_up)


def fold_into_tables(graph: Graph) -> bool:
    """Gather of rows of a constant matrix that nobody else reads, then formulas of each of their elements, with
    constants for each column → Gather of what these make of the matrix."""
    uses, changed = Uses(graph), False
    place = {n: i for i, n in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        members = _formulas_of(uses, node, place)
        if members:
            _compute_before(uses, node, members)
            graph.nodes.remove(node)
            graph.nodes.insert(graph.nodes.index(members[-1]) + 1, node)
            place = {n: i for i, n in enumerate(graph.nodes)}
            changed = True
    return changed


def _looked_up(uses: Uses, node: Node) -> list[Node] | None:
    """The nodes in the place of a product; None where it is no lookup."""
    if node.op not in PRODUCTS or node.opset < OPSET:
        return None
    choice, table = _choice(node.input(0)), _matrix(node)
    if choice is None or table is None or len(choice.places) != len(table):
        return None
    made = _Nodes(uses, node)
    ids = choice.ids
    count, first = len(table), choice.first
    if choice.wraps:
        negative = made.add("Less", T.BOOL, ids.shape, ids, made.number(0, ids))
        turned = made.add("Add", ids.dtype, ids.shape, ids, made.number(count, ids))
        ids = made.add("Where", ids.dtype, ids.shape, negative, turned, ids)
    ids = made.add("Clip", ids.dtype, ids.shape, ids, made.number(first - 1, ids), made.number(first + count, ids))
    if first != 0:
        ids = made.add("Sub", ids.dtype, ids.shape, ids, made.number(first, ids))
    if choice.apart:
        axes = constant(uses.name(), np.array([-1], np.int64), T.I64)
        ids = made.add("Squeeze", ids.dtype, ids.known_shape[:-1], ids, axes)
    rows = table[np.argsort(choice.places)] + table.dtype.type(0)
    rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    made.end("Gather", _like(uses, rows, node.input(1)), ids, node.input(2) if node.has(2) else None)
    return made.nodes


def _like(uses: Uses, array: Array, like: Value) -> Value:
    """A constant of another one's type."""
    return constant(uses.name(), np.ascontiguousarray(array), like.dtype or T.F32)


class _Nodes:
    """The nodes that take the place of another one."""

    def __init__(self, uses: Uses, root: Node) -> None:
        self.uses, self.root, self.nodes = uses, root, list[Node]()

    def number(self, n: int, like: Value) -> Value:
        """A constant of an integer type."""
        return _like(self.uses, np.array(n, like.dtype.name if like.dtype else "int64"), like)

    def add(self, op: str, dtype: T.DType | None, shape: tuple[Dim, ...] | None, *inputs: Value) -> Value:
        """What a new node makes."""
        out = Value(self.uses.name(), dtype, shape, roots=self.root.input(0).roots)
        self._node(op, out, inputs)
        return out

    def end(self, op: str, x: Value, y: Value, summand: Value | None) -> None:
        """The node that makes what the root made, with a sum after it where there is a summand."""
        out = self.root.output()
        if summand is None:
            self._node(op, out, (x, y))
        else:
            self._node("Add", out, (self.add(op, out.dtype, out.shape, x, y), summand))

    def _node(self, op: str, out: Value, inputs: Collection[Value]) -> None:
        root = self.root
        node = Node(op, "", f"{root.name}/{op}", list(inputs), [out], root.opset, sources=root.sources)
        out.producer = node
        self.nodes.append(node)


def _choice(left: Value) -> _Choice | None:
    node = left.producer
    if node is None or left.dtype not in (T.F32, T.F16):
        return None
    return _of_one_hot(node) if node.op == "OneHot" else _of_equal(node) if node.op == "Cast" else None


def _of_equal(cast: Node) -> _Choice | None:
    """Cast(ids == range) where the range lies along the last axis and ids along the others."""
    equal = cast.input(0).producer
    if equal is None or equal.op != "Equal":
        return None
    for ids, numbers in ((equal.input(0), equal.input(1)), (equal.input(1), equal.input(0))):
        held = numbers.const
        if held is None or ids.const is not None or ids.dtype not in (T.I32, T.I64) or ids.shape is None:
            continue
        if not held.size or held.shape[-1:] != (held.size,) or ids.shape[-1:] != (1,) or held.ndim > ids.rank:
            continue
        places = held.reshape(-1)
        first, last, limits = int(places.min()), int(places.max()), np.iinfo(places.dtype)
        if last - first != held.size - 1 or len(np.unique(places)) != held.size:
            continue
        if limits.min < first and last < limits.max:
            return _Choice(ids, first, places - places.min(), apart=True)
    return None


def _of_one_hot(node: Node) -> _Choice | None:
    """OneHot along a new last axis."""
    ids, depth, values = (node.input(k) for k in range(3))
    if ids.shape is None or ids.dtype not in (T.I32, T.I64) or depth.const is None or values.const is None:
        return None
    if node.attr("axis", -1) not in (-1, ids.rank) or depth.const.size != 1 or values.const.tolist() != [0.0, 1.0]:
        return None
    count = int(depth.const.reshape(-1)[0])
    return _Choice(ids, 0, np.arange(count), wraps=True) if 0 < count < 2**31 else None


def _matrix(node: Node) -> Array | None:
    """The right operand as [k, n] where it is finite, and the product nothing but one by it (and a sum)."""
    held = node.input(1).const
    if held is None or held.ndim != 2 or not np.isfinite(held).all() or node.output().shape is None:
        return None
    if node.op == "Gemm":
        alone = not node.has(2) or node.attr("beta", 1.0) == 1.0
        if node.attr("transA", 0) or node.attr("alpha", 1.0) != 1.0 or not alone:
            return None
        return held.T if node.attr("transB", 0) else held
    return held


def _formulas_of(uses: Uses, gather: Node, place: dict[Node, int]) -> list[Node]:
    """The nodes, in order, that compute one value of the rows and constants alone, where nobody else needs the rows."""
    if gather.op != "Gather" or gather.attr("axis", 0) != 0:
        return []
    table, rows = gather.input(0), gather.output()
    if table.const is None or table.const.ndim != 2 or table.const.size > MOST or table.dtype not in (T.F32, T.F16):
        return []
    if not uses.alone(table, gather) or rows.shape is None or gather.input(1).const is not None:
        return []
    inside, members = {rows}, list[Node]()
    near = [(place[n], n) for n in uses.readers.get(rows, [])]
    while near:
        near.sort(key=lambda at: -at[0])
        node = near.pop()[1]
        if node not in members and _is_formula(node, inside, rows):
            members.append(node)
            inside.add(node.output())
            near += [(place[n], n) for n in uses.readers.get(node.output(), [])]
    left = [v for v in inside if v in uses.fixed or any(n not in members for n in uses.readers.get(v, []))]
    return members if members and left == [members[-1].output()] else []


def _is_formula(node: Node, inside: Collection[Value], rows: Value) -> bool:
    if node.op not in FORMULAS or node.output().shape != rows.shape or node.output().dtype != rows.dtype:
        return False
    return all(v in inside or (v.const is not None and _is_column_wise(v, rows)) for v in node.given())


def _is_column_wise(v: Value, rows: Value) -> bool:
    """Whether a constant is the same for all rows."""
    return v.const is not None and v.const.ndim <= rows.rank and v.const.size == (v.const.shape or (1,))[-1]


def _compute_before(uses: Uses, gather: Node, members: list[Node]) -> None:
    """Lets the formulas read the table, and the lookup what they make."""
    table, rows, out = gather.input(0), gather.output(), members[-1].output()
    for node in members:
        for k, v in enumerate(node.inputs):
            if v is rows:
                uses.replace_input(node, k, table)
            elif v is not None and v.const is not None and v.const.ndim > 1:
                uses.replace_input(node, k, _like(uses, v.const.reshape(-1), v))
        node.output().shape = table.shape
    made = Value(uses.name(), table.dtype, table.shape, producer=members[-1])
    members[-1].outputs = [made]
    uses.replace_input(gather, 0, made)
    gather.outputs, out.producer, out.shape = [out], gather, rows.shape
