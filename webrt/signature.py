"""What a session tells of its model: inputs, outputs, overridable initializers, metadata; names as in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webrt.errors import PlanError
from webrt.plan import Plan, ValueInfo
from webrt.runtime.sizes import size_text

if TYPE_CHECKING:
    import onnx

    from webrt.ir import Graph, Value

MAX_TEXT = 40
"""A longer expression is no name for a size."""

# ONNX Runtime names a few element types otherwise than ONNX.
_ORT_NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `type` as "tensor(float)"; `shape` of ints, names of dims, and None for nameless ones."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """The model's own metadata."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """All of it. `overridable` are initializers that may be fed."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    meta: ModelMetadata

    @property
    def dtypes(self) -> dict[str, str]:
        """Element types by name of what may be fed; "" for what is no tensor."""
        return {a.name: _dtype(a.type) for a in [*self.inputs, *self.overridable]}


def of_plan(plan: Plan) -> Signature:
    """The signature that a plan carries. Sequences, maps and optionals have the type "" there.

    Raises PlanError for what is none: it is read before the plan is validated.
    """
    try:
        overridable = [
            NodeArg(o["name"], tensor_type(o["dtype"]), list(o["shape"])) for o in plan.meta.get("overridable", ())
        ]
        inputs = [_arg(plan, v) for v in plan.inputs]
        return Signature(inputs, [_arg(plan, v) for v in plan.outputs], overridable, _metadata(plan.meta))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
        what = f"its inputs, outputs or metadata: {type(e).__name__}: {e}"
        raise PlanError(f"the plan is damaged ({what}); compile the model again") from e


def of_graph(graph: Graph) -> Signature:
    """The signature that a model declares."""
    return Signature(
        [_declared(v) for v in graph.inputs],
        [_declared(v) for v in graph.outputs],
        [_declared(v) for v in graph.overridable],
        _metadata(graph.meta),
    )


def tensor_type(dtype: str) -> str:
    """ONNX Runtime's name of a tensor type."""
    return f"tensor({_ORT_NAMES.get(dtype, dtype)})" if dtype else ""


def _dtype(text: str) -> str:
    if not text.startswith("tensor("):
        return ""
    inner = text.removeprefix("tensor(").removesuffix(")")
    return next((k for k, v in _ORT_NAMES.items() if v == inner), inner)


def type_text(proto: onnx.TypeProto) -> str:
    """ONNX Runtime's name of a type: tensor(float), seq(tensor(int64)), map(string,tensor(float)), optional(…)."""
    from webrt.dtypes import BY_CODE

    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({type_text(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_text(proto.optional_type.elem_type)})"
    if kind == "map_type":
        key = BY_CODE[proto.map_type.key_type].name if proto.map_type.key_type in BY_CODE else ""
        return f"map({key},{type_text(proto.map_type.value_type)})"
    tensor = proto.sparse_tensor_type if kind == "sparse_tensor_type" else proto.tensor_type
    text = tensor_type(BY_CODE[tensor.elem_type].name) if tensor.elem_type in BY_CODE else ""
    return f"sparse_{text}" if kind == "sparse_tensor_type" else text


def _arg(plan: Plan, info: ValueInfo) -> NodeArg:
    sizes = [size_text(plan.dims, d) for d in info.shape or ()]
    sizes = [s if isinstance(s, int) or len(s) <= MAX_TEXT else "" for s in sizes]
    return NodeArg(info.name, tensor_type(info.dtype), _named(info.name, sizes))


def _declared(value: Value) -> NodeArg:
    kind = tensor_type(str(value.dtype)) if value.dtype else type_text(value.type_proto) if value.type_proto else ""
    shape = value.shape
    if shape is None and value.type_proto is not None:
        from webrt.compiler.frontend import shape_of

        _, shape = shape_of(value.name, value.type_proto)
    return NodeArg(value.name, kind, _named(value.name, [d if isinstance(d, int) else str(d) for d in shape or ()]))


def _named(name: str, sizes: list[int | str]) -> list[int | str | None]:
    """The frontend calls a size without a name NAME.AXIS; sizes of long expressions have no name either."""
    return [None if s in ("", f"{name}.{axis}") else s for axis, s in enumerate(sizes)]


def _metadata(meta: Mapping[str, Any]) -> ModelMetadata:
    texts = {
        k: str(meta.get(k, "")) for k in ("producer_name", "graph_name", "domain", "description", "graph_description")
    }
    custom = {str(k): str(v) for k, v in dict(meta.get("custom_metadata_map", {})).items()}
    return ModelMetadata(**texts, version=int(meta.get("version", 0)), custom_metadata_map=custom)
