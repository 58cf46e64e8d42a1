"""Types, shapes and contents of every value, in order of execution.

An operator's own shape function comes first, then onnx's inference of one node. Sizes that nobody knows become
variables `VALUE.AXIS`, which the executor binds when a host step has made the value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference

import webrt.ops  # noqa: F401  (registers the operators)
from webrt import dims as D
from webrt import dtypes as T
from webrt import lowering
from webrt.compiler import contents
from webrt.compiler.frontend import shape_of
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import InvalidModel, NotConstant, ShapeError, UnsupportedOp, UnsupportedType, WebrtError
from webrt.ir import Graph, Node, Value

MAX_CONTENTS = 1024
MAX_ELEMENTS = 16
MAX_RANK = 64
"""As numpy and validate.py have it."""
COMPUTED = ""
"""Stands in `roots` for tensors whose elements no caller can give beforehand."""


def infer(graph: Graph, structural: Collection[str] = ()) -> set[str]:
    """Fills in types, shapes, contents and roots. `structural` names values whose integers are variables `in:NAME[i]`.

    Returns the names of further values whose elements a shape function asked for in vain.
    Raises ShapeError or InvalidModel where the model contradicts itself.
    """
    wanted: set[str] = set()
    for value in graph.inputs:
        if len(value.shape or ()) > MAX_RANK:
            raise ShapeError(
                f"input {value.name!r} has rank {value.rank}; webrt holds tensors of up to {MAX_RANK} axes"
            )
        if value.const is None and graph.around is None:
            value.roots = frozenset({value.name}) if _small(value, 64) else frozenset({COMPUTED})
        _mark(value, structural)
    for node in graph.nodes:
        graph.bounds.check("inference")
        _node(node, graph, wanted, structural)
        for output in node.outputs:
            if output is not None:
                _mark(output, structural)
    return wanted


def describe_inputs(node: Node) -> str:
    """For errors: the types and shapes of a node's inputs."""
    return ", ".join(
        "-" if v is None else f"{v.dtype}[{'?' if v.shape is None else ','.join(map(str, v.shape))}]"
        for v in node.inputs
    )


def located(error: WebrtError, node: Node) -> WebrtError:
    """The error with the model's node that it is about."""
    if node.caller is not None and not error.node:
        error.what = f"its {node.op} of {describe_inputs(node)}: {error.what}"
        return located(error, node.caller)
    return error.at(node=node.name, op=node.op, opset=node.opset, inputs=describe_inputs(node))


@contextmanager
def guarded() -> Iterator[None]:
    """Around an operator's own code: attributes and inputs of a form that no check knew of are an InvalidModel."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        what = f"{type(e).__name__}: {e}"
        raise InvalidModel(f"its attributes and inputs do not fit together ({what}); export the model again") from e


def _node(node: Node, graph: Graph, wanted: set[str], structural: Collection[str]) -> None:
    try:
        infos = _own_shapes(node, wanted)
        if infos is None and graph.opener is not None:
            infos = graph.opener.open(node, graph, structural)
        if infos is None:
            infos = _onnx_shapes(node, graph)
        for _, shape in infos:
            if len(shape or ()) > MAX_RANK:
                raise ShapeError(
                    f"its output has rank {len(shape or ())}; webrt holds tensors of up to {MAX_RANK} axes"
                )
            if any(isinstance(d, int) and d < 0 for d in shape or ()):
                raise ShapeError(f"its output would be {list(map(str, shape or ()))}")
    except (ShapeError, InvalidModel) as e:
        raise located(e, node) from None
    roots = _roots(node)
    node.broadcasts = tuple(d for _, shape in infos for d in shape or () if D.settled(d) != d)
    for value, (dtype, shape) in zip(node.outputs, infos, strict=False):
        if value is None:
            continue
        value.dtype, value.roots = dtype, roots
        value.shape = None if shape is None else tuple(map(D.settled, shape))
        value.contents = None
    _set_contents(node)


def _own_shapes(node: Node, wanted: set[str]) -> list[lowering.Info] | None:
    node.declined = None
    op = lowering.find(node.domain, node.op_type, node.opset)
    if op is None:
        return None
    try:
        with guarded():
            infos = list(op.shape(node))
    except (NotConstant, UnsupportedOp, UnsupportedType) as e:
        wanted |= e.wanted if isinstance(e, NotConstant) else set()
        node.declined = e
        return None
    return infos + [(None, None)] * (len(node.outputs) - len(infos))


def _onnx_shapes(node: Node, graph: Graph) -> list[lowering.Info]:
    names: dict[str, Dim] = {}
    types = {
        v.name: _type_proto(v, names)
        for v in [*node.given(), *node.outer]
        if v.dtype is not None or v.type_proto is not None
    }
    data = {v.name: _tensor(v) for v in node.given() if _is_known_int(v)}
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in graph.opsets.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(
            node.schema, node.to_proto(), types, data, opset_imports=opsets, ir_version=graph.ir_version
        )
    except (KeyError, onnx.checker.ValidationError):  # an input of unknown type; a schema at odds with itself
        found = {}
    except (onnx.shape_inference.InferenceError, RuntimeError, TypeError, ValueError) as e:
        raise ShapeError(f"onnx's shape inference: {str(e).strip().splitlines()[0]}") from e
    infos: list[lowering.Info] = []
    for value in node.outputs:
        proto = found.get(value.name) if value is not None else None
        if proto is None or value is None:
            infos.append((None, None))
            continue
        dtype, shape = shape_of(value.name, proto)
        if value.type_proto is None or not proto.HasField("tensor_type") or proto.tensor_type.HasField("shape"):
            value.type_proto = proto
        infos.append((dtype, None if shape is None else tuple(_rename(d, names) for d in shape)))
    return infos


def _set_contents(node: Node) -> None:
    integers = (T.I64, T.I32, T.BOOL)
    if not any(v is not None and v.dtype in integers and _small(v, MAX_CONTENTS) for v in node.outputs):
        return
    try:
        with guarded():
            results = contents.propagate(node)
    except (ShapeError, InvalidModel) as e:
        raise located(e, node) from None
    for value, array in zip(node.outputs, results, strict=False):
        if value is not None and array is not None and value.static_shape == tuple(array.shape):
            value.contents = array
            if not any(name.startswith("in:") for d in array.flat for name in D.variables(d)):
                value.roots = frozenset()


def _mark(value: Value, structural: Collection[str]) -> None:
    if value.name in structural and value.const is None and value.contents is None and may_be_structural(value):
        shape = value.static_shape or ()
        flat = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=object)
        flat[:] = [D.element(value.name, i) for i in range(flat.size)]
        value.contents = flat.reshape(shape)


def may_be_structural(value: Value) -> bool:
    """Whether a value's elements can be variables of the plan."""
    return (
        value.dtype in (T.I64, T.I32)
        and value.shape is not None
        and len(value.shape) <= 1
        and _small(value, MAX_ELEMENTS)
    )


def variables_for(values: Sequence[Value], by_name: Mapping[str, Value]) -> set[str]:
    """Names of values whose elements, as variables of the plan, tell those of `values`; empty where there are none.

    The graph inputs that decide them come first: all else may follow from those by shape arithmetic."""
    roots = [by_name.get(name) for v in values for name in v.roots]
    free = {v.name for v in roots if v is not None and may_be_structural(v) and v.contents is None and v.const is None}
    if roots and len(free) == len({r.name for r in roots if r is not None}) and None not in roots:
        return free
    able = all(may_be_structural(v) and v.contents is None for v in values)
    return {v.name for v in values} if able else set()


def is_variable(value: Value) -> bool:
    """Whether a value's elements are variables of the plan, and not sizes that shape arithmetic gave."""
    return value.contents is None or value.contents.size == 0 or value.contents.flat[0] == D.element(value.name, 0)


def _small(value: Value, limit: int) -> bool:
    shape = value.static_shape
    return shape is not None and math.prod(shape) <= limit


def _roots(node: Node) -> frozenset[str]:
    out: frozenset[str] = frozenset()
    for v in [*node.given(), *node.outer]:
        if v.const is None:
            out |= v.roots
    return out


def _type_proto(value: Value, names: dict[str, Dim]) -> onnx.TypeProto:
    if value.dtype is None:
        return value.type_proto if value.type_proto is not None else onnx.TypeProto()
    if value.shape is None:
        proto = onnx.TypeProto()
        proto.tensor_type.elem_type = value.dtype.code
        return proto
    sizes: list[int | str] = []
    for d in value.shape:
        if isinstance(d, int):
            sizes.append(d)
        else:
            names[D.text(d)] = d
            sizes.append(D.text(d))
    return onnx.helper.make_tensor_type_proto(value.dtype.code, sizes)


def _rename(d: Dim, names: dict[str, Dim]) -> Dim:
    return d if isinstance(d, int) else D.substitute(d, names)


def _is_known_int(value: Value) -> bool:
    if value.const is not None:
        return value.const.size <= MAX_CONTENTS and value.const.dtype.kind in "iufb"
    return value.contents is not None and all(isinstance(d, int) for d in value.contents.flat)


def _tensor(value: Value) -> onnx.TensorProto:
    array: np.ndarray[Any, Any] | None = value.const
    if array is None and value.contents is not None:
        array = value.contents.astype(_numpy(value.dtype))
    return onnx.numpy_helper.from_array(np.asarray(array), value.name)


def _numpy(dtype: DType | None) -> str:
    return dtype.name if dtype is not None else "int64"
