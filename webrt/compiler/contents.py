"""Shape arithmetic before the run: the elements of small integer tensors as Dims.

`propagate` follows chains such as Shape → Gather → Mul → Concat → Reshape, so that a plan's sizes stay symbolic and
no step of the run computes them. Contents are numpy object arrays of Dims in the value's shape; booleans are 0 and 1.
A rule returns None where it cannot prove the result (floats, a sign that is not known); the node is then placed like
any other.
"""

from __future__ import annotations

import math

import numpy as np

from webrt import dtypes as T
from webrt.compiler.content_rules import RULES, Contents, object_array
from webrt.errors import NotConstant
from webrt.ir import Node, Value

MAX_ELEMENTS = 1024
INTEGERS = frozenset({T.I64, T.I32, T.BOOL})
_BY_SHAPE = frozenset({"Shape", "Size"})


def propagate(node: Node) -> list[Contents | None]:
    """The contents of each output of `node` as far as they are known; its outputs' types and shapes must be set.

    Raises ShapeError where the arithmetic itself is wrong (a division by zero).
    """
    unknown: list[Contents | None] = [None] * len(node.outputs)
    rule = RULES.get(node.op_type) if node.domain == "" else None
    if rule is None or not all(v is None or _is_small(v) for v in node.outputs):
        return unknown
    known = [] if node.op_type in _BY_SHAPE else [contents_of(v) for v in node.given()]
    if any(k is None for k in known):
        return unknown
    try:
        found = rule(node, [k for k in known if k is not None])
    except (NotConstant, IndexError, ValueError):
        return unknown  # an index out of range or sizes that do not fit: the node's own provider says so
    if found is None:
        return unknown
    several = found if isinstance(found, (list, tuple)) else [found]
    return [np.asarray(a, dtype=object) for a in several]


def contents_of(value: Value) -> Contents | None:
    """The integers of a value, known by propagation or because it is a constant."""
    if value.contents is not None:
        return value.contents
    if value.const is None or value.const.size > MAX_ELEMENTS or value.const.dtype.kind not in "iub":
        return None
    flat = [int(x) for x in value.const.flat]
    return object_array(flat, value.const.shape)


def _is_small(v: Value) -> bool:
    shape = v.static_shape
    return v.dtype in INTEGERS and shape is not None and math.prod(shape) <= MAX_ELEMENTS
