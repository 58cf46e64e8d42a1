"""The graph that the compile half works on: nodes, values, and what is known of them.

Attributes stay onnx.AttributeProto and subgraphs stay GraphProto, so a node turns back into its NodeProto unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import onnx
import onnx.defs

from webrt import dims as D
from webrt.bounds import Bounds
from webrt.dims import Dim
from webrt.dtypes import BY_CODE, DType
from webrt.errors import InvalidModel, ModelError, NotConstant

_OWN = "webrt."
"""What the names of values begin with that the model does not name (unique_names)."""


@dataclass(eq=False)
class Value:
    """What one node (or the graph's input list) makes.

    `shape` is None while the rank is not known; `dtype` is None for sequences, optionals and maps (`type_proto` says).
    `const` holds the elements of a constant. `contents` holds the integers of a small integer tensor as Dims (an object
    array of the value's shape), known before the run though they may be symbolic.
    """

    name: str
    dtype: DType | None = None
    shape: tuple[Dim, ...] | None = None
    const: np.ndarray[Any, Any] | None = None
    contents: np.ndarray[Any, Any] | None = None
    producer: Node | None = None
    type_proto: onnx.TypeProto | None = None
    roots: frozenset[str] = frozenset()

    @property
    def told(self) -> str:
        """What a message calls it: its name, or where that is none of the model's the node that makes it."""
        node = self.producer
        if node is None or not node.name or not self.name.startswith(_OWN):
            return repr(self.name)
        return f"what {node.op} {node.name!r} makes"

    @property
    def rank(self) -> int:
        return len(self.known_shape)

    @property
    def known_shape(self) -> tuple[Dim, ...]:
        """The shape; raises NotConstant where even the rank is not known."""
        if self.shape is None:
            raise NotConstant(
                f"the rank of {self.told} is not known before the run", wanted=self.name, roots=self.roots
            )
        return self.shape

    @property
    def elements(self) -> Dim:
        """How many elements the tensor has."""
        return D.prod(self.known_shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape where every size is an int."""
        if self.shape is None or not all(isinstance(d, int) for d in self.shape):
            return None
        return tuple(int(d) for d in self.shape if isinstance(d, int))

    def __repr__(self) -> str:
        shape = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.name}:{self.dtype}[{shape}]"


@dataclass(eq=False)
class Node:
    """An operator's call. `opset` is the version of `domain` that the model imports. Absent inputs are None.

    `declined`: why the operator's own shape function could not tell the outputs' sizes. `channels_last`: the images
    among its operands, [N, C, …] by the operator's text, are [N, …, C]. `caller`: the model's node
    whose function has it in its body. `broadcasts`: sizes of outputs as they were broadcast, where their shapes have
    simpler ones that are the same wherever these have a value. `views`: the inputs, by number, whose elements are read
    as a View (webrt/ops/view.py) has them: the operator's operand is that."""

    op_type: str
    domain: str
    name: str
    inputs: list[Value | None]
    outputs: list[Value | None]
    opset: int
    attrs: dict[str, onnx.AttributeProto] = field(default_factory=dict)
    outer: list[Value] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    declined: ModelError | None = None
    channels_last: bool = False
    caller: Node | None = None
    broadcasts: tuple[Dim, ...] = ()
    views: Mapping[int, Any] = field(default_factory=dict)

    @property
    def op(self) -> str:
        """ "Conv", or "com.microsoft:MatMulNBits"."""
        return f"{self.domain}:{self.op_type}" if self.domain else self.op_type

    @property
    def schema(self) -> onnx.defs.OpSchema:
        """Raises InvalidModel where neither onnx nor webrt.schemas knows the operator at this opset."""
        return _schema(self.op_type, self.domain, self.opset)

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Whether output `index` is used by name."""
        return index < len(self.outputs) and self.outputs[index] is not None

    def input(self, index: int) -> Value:
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise InvalidModel(f"input {index} is missing")
        return value

    def output(self, index: int = 0) -> Value:
        value = self.outputs[index] if index < len(self.outputs) else None
        if value is None:
            raise InvalidModel(f"output {index} is missing")
        return value

    def given(self) -> list[Value]:
        """The inputs that are not absent."""
        return [v for v in self.inputs if v is not None]

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute as int, float, str, list, array or GraphProto; else the schema's default; else `default`."""
        if name in self.attrs:
            return attribute_value(self.attrs[name])
        declared = self.schema.attributes.get(name)
        if declared is not None and declared.default_value.type:
            return attribute_value(declared.default_value)
        return default

    def const(self, index: int) -> np.ndarray[Any, Any]:
        """The elements of input `index`, which are real numbers; raises NotConstant, and InvalidModel for others."""
        value = self.input(index)
        if value.const is not None:
            if value.const.dtype.kind in "cOSU":
                raise InvalidModel(f"the elements of {value.name!r} are {value.dtype}; real numbers are needed")
            return value.const
        if value.contents is not None and all(isinstance(d, int) for d in value.contents.flat):
            return value.contents.astype(np.int64)
        raise NotConstant(
            f"the elements of {value.name!r} are not known before the run", wanted=value.name, roots=value.roots
        )

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The integers of input `index` as Dims, flattened; raises NotConstant."""
        value = self.input(index)
        if value.contents is not None:
            return tuple(value.contents.flat)
        array = self.const(index)
        if array.dtype.kind not in "biuf":
            raise InvalidModel(f"the elements of {value.name!r} are {array.dtype}, sizes are integers")
        return tuple(int(x) for x in array.flat)

    def to_proto(self) -> onnx.NodeProto:
        """The node as ONNX writes it."""
        proto = onnx.NodeProto(op_type=self.op_type, domain=self.domain, name=self.name)
        proto.input.extend("" if v is None else v.name for v in self.inputs)
        proto.output.extend("" if v is None else v.name for v in self.outputs)
        proto.attribute.extend(self.attrs.values())
        return proto

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.inputs))}) -> {', '.join(map(repr, self.outputs))}"


class Opener(Protocol):
    """Looks into the subgraphs of nodes."""

    def open(
        self, node: Node, graph: Graph, structural: Collection[str]
    ) -> list[tuple[DType | None, tuple[Dim, ...] | None]] | None:
        """Types and shapes of a node's outputs; None where it has no subgraphs, or they stay closed."""

    def of(self, node: Node) -> Any:
        """The bodies of a node that was opened (`compiler.body.Body`); None where there are none."""


@dataclass(eq=False)
class Graph:
    """A model in order of execution. `overridable` are initializers that are graph inputs too. `assumed`: sizes, as
    text, that are taken to be 0 (False) or not (True). `ranges`: (lowest, highest) of sizes that `checks` hold there,
    by name. `checks`: sizes that must not be 0, and what is wrong if so. `around`: the graph that a body stands in.
    `opener` opens control flow that only the run decides. `places`: the provider that the caller wishes, by name of a
    node of the model. `adapter`: the kind that the target is of."""

    nodes: list[Node]
    inputs: list[Value]
    outputs: list[Value]
    opsets: dict[str, int]
    overridable: list[Value] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    ir_version: int = 10
    assumed: Mapping[str, bool] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    checks: dict[Dim, str] = field(default_factory=dict)
    around: Graph | None = None
    opener: Opener | None = None
    bounds: Bounds = field(default_factory=Bounds)
    places: Mapping[str, str] = field(default_factory=dict)
    adapter: str = "any"

    def users(self) -> dict[Value, list[Node]]:
        """Who reads each value (subgraphs' captures included)."""
        out: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in itertools.chain(node.given(), node.outer):
                out.setdefault(v, []).append(node)
        return out

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, constants that are used (by subgraphs too), outputs of nodes."""
        seen: set[int] = set()
        for v in itertools.chain(self.inputs, *(_touched(n) for n in self.nodes), self.outputs):
            if id(v) not in seen:
                seen.add(id(v))
                yield v


def constant(name: str, array: np.ndarray[Any, Any], dtype: DType) -> Value:
    """A constant value; small integers are their own contents."""
    return Value(name, dtype, tuple(array.shape), const=array)


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """ints, floats, text (bytes that are not UTF-8 stay bytes), numpy arrays; graphs and types stay protos."""
    value = onnx.helper.get_attribute_value(attribute)
    kind = attribute.type
    if kind == onnx.AttributeProto.STRING:
        return _text(value)
    if kind == onnx.AttributeProto.STRINGS:
        return [_text(v) for v in value]
    if kind == onnx.AttributeProto.TENSOR:
        return onnx.numpy_helper.to_array(value)
    return list(value) if kind in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value


def graphs_of(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The subgraphs that a node's attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def dtype_of(code: int) -> DType:
    """The type of a TensorProto.DataType; raises InvalidModel."""
    if code not in BY_CODE:
        raise InvalidModel(f"element type {code} is not one that webrt knows")
    return BY_CODE[code]


def unique_names(taken: Iterable[str]) -> Iterator[str]:
    """Fresh value names, none of which is in `taken`."""
    known = set(taken)
    return (name for i in itertools.count() if (name := f"{_OWN}{i}") not in known)


def _touched(node: Node) -> Iterator[Value]:
    return (v for v in (*node.inputs, *node.outer, *node.outputs) if v is not None)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


@lru_cache(maxsize=4096)
def _schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema:
    from webrt import schemas

    schemas.register()
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError as e:
        raise InvalidModel(f"{domain or 'ai.onnx'} has no operator {op_type!r} at opset {opset}") from e
