"""Model cases: a seed model with a few mutations that know ONNX's structure, or with noise in its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import helper

from tests.fuzz.noise import noisy
from webrt import schemas

INTS = (-1, 0, 1, 2, 3, 4, 7, 8, 16, 17, 64, 255, 256, 1023, 65536, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**62,
        2**63 - 1, -2, -3, -(2**31), -(2**63))  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3.4e38, 1e300, float("inf"), float("-inf"), float("nan"), -1e10)
TEXTS = ("", "x", "y", "a", "n", "N", "?", "-1", "0", "in:x[0]", "x.0", "../up", "/etc/passwd", "weights", "é\n\x00",
         "ai.onnx", "com.microsoft", "Relu", "If", "Loop", "NOTSET", "SAME_UPPER", "constant", "linear", "i,ij->j",
         "webrt.0")  # fmt: skip
LONG = "name" * 5000

_NOT_HERE = (ArithmeticError, LookupError, ValueError, TypeError, onnx.checker.ValidationError)
"""What a mutation raises whose part is not in a model, or cannot hold what it would have to."""

Mutation = Callable[[Random, onnx.ModelProto, Sequence[bytes]], None]


def make(random: Random, seeds: Sequence[bytes]) -> tuple[bytes, dict[str, Any]]:
    """A model's bytes and keyword arguments of CompileOptions."""
    data = random.choice(seeds)
    if random.random() < 0.12:
        return noisy(random, data), options(random)
    model = onnx.ModelProto.FromString(data)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        try:
            random.choices(MUTATIONS, WEIGHTS)[0](random, model, seeds)
        except _NOT_HERE:
            continue
    out = bytes(model.SerializeToString())
    return (noisy(random, out) if random.random() < 0.03 else out), options(random)


def options(random: Random) -> dict[str, Any]:
    """Mostly the usual options; sometimes others, that may contradict the model."""
    out: dict[str, Any] = {"external_data": {"weights": bytes(16)}}
    if random.random() < 0.6:
        return out
    choices: Mapping[str, Callable[[], Any]] = {
        "level": lambda: random.choice(("disabled", "basic", "extended")),
        "providers": lambda: random.choice((("cpu",), ("webgpu",))),
        "strict": lambda: True,
        "assumed": lambda: {},
        "free_dims": lambda: {random.choice(("n", "b", "s", "q", "d0_0", "h")): random.choice((0, 1, 4, 2**31, -1))},
        "known_inputs": lambda: {random.choice(("x", "k", "trips", "x0", "x1", "w")): _array(random)},
    }
    for name in random.sample(list(choices), random.choice((1, 1, 2))):
        out[name] = choices[name]()
    return out


def _array(random: Random) -> np.ndarray[Any, Any]:
    dtype = random.choice((np.float32, np.int64, np.int32, np.bool_, np.float16))
    shape = random.choice(((), (1,), (2,), (4,), (3, 4), (0,), (1, 2, 3)))
    return np.array(random.choice((-1, 0, 1, 3, 1000))).astype(dtype) * np.ones(shape, dtype)


def _messages(message: Message) -> list[Message]:
    """The message and all inside it; weights' numbers are no messages."""
    found: list[Message] = []
    stack = [message]
    while stack and len(found) < 5000:
        at = stack.pop()
        found.append(at)
        for field, value in at.ListFields():
            if field.message_type is not None:
                stack.extend(value if field.is_repeated else [value])
    return found


def any_field(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """One field of one message: another value, no value, twice, in another order."""
    at: Any = random.choice(_messages(model))
    field = random.choice(list(at.DESCRIPTOR.fields) if random.random() < 0.15 else [f for f, _ in at.ListFields()])
    if field.is_repeated:
        _change_list(random, getattr(at, field.name), field)
    elif random.random() < 0.15:
        at.ClearField(field.name)
    elif field.message_type is not None:
        getattr(at, field.name).SetInParent()
    else:
        setattr(at, field.name, _scalar(random, field, getattr(at, field.name)))


def _change_list(random: Random, values: Any, field: FieldDescriptor) -> None:
    what = random.choice(("drop", "double", "swap", "set", "clear", "add"))
    if what == "clear":
        del values[:]
    elif what == "add" and field.message_type is None:
        values.append(_scalar(random, field, None))
    elif what == "add":
        values.add()
    else:
        i = random.randrange(len(values))
        if what == "drop":
            del values[i]
        elif what == "double":
            values.extend([values[i]] * random.choice((1, 1, 1, 3)))
        elif field.message_type is None:
            values[i] = _scalar(random, field, values[i])
        else:
            values[i].CopyFrom(random.choice(list(values)))


def _scalar(random: Random, field: FieldDescriptor, old: Any) -> Any:
    kind = field.cpp_type
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return random.choice(FLOATS)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice([v.number for v in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return noisy(random, old or b"") if random.random() < 0.7 else random.choice(TEXTS).encode()
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return LONG if random.random() < 0.01 else random.choice(TEXTS)
    value = random.choice(INTS) if random.random() < 0.6 else (old or 0) + random.choice((-2, -1, 1, 2))
    if field.type == FieldDescriptor.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, value))
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32):
        return abs(value)
    return max(-(2**63), min(2**63 - 1, value))


def _graphs(model: onnx.ModelProto) -> list[Any]:
    return [m for m in _messages(model) if isinstance(m, onnx.GraphProto)]


def _names(graph: Any) -> list[str]:
    made = [o for n in graph.node for o in n.output]
    return ["", *made, *(i.name for i in graph.input), *(t.name for t in graph.initializer)]


def edge(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """An input of a node, or an output of the graph, becomes another value: a cycle, a wrong type, a dangling name."""
    graph = random.choice(_graphs(model))
    node = random.choice(list(graph.node))
    name = random.choice([*_names(random.choice(_graphs(model))), "nowhere"])
    what = random.random()
    if what < 0.6:
        node.input[random.randrange(len(node.input))] = name
    elif what < 0.8:
        node.output[random.randrange(len(node.output))] = name
    else:
        random.choice(list(graph.output)).name = name


def operator(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """Another operator for a node: any of the schemas', or one from another seed with its attributes."""
    node = random.choice(list(random.choice(_graphs(model)).node))
    if random.random() < 0.5:
        other = onnx.ModelProto.FromString(random.choice(seeds)).graph.node[0]
        node.op_type, node.domain = other.op_type, other.domain
        del node.attribute[:]
        node.attribute.extend(other.attribute)
        if other.domain and other.domain not in [o.domain for o in model.opset_import]:
            model.opset_import.append(helper.make_opsetid(other.domain, 1))
    else:
        node.op_type = random.choice(_OPERATORS)


_OPERATORS = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})


def attribute(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """An attribute that the schema knows, with a value of its type or of any."""
    node = random.choice(list(random.choice(_graphs(model)).node))
    schema = schemas.get_schema(node.op_type, onnx.defs.onnx_opset_version(), node.domain)
    names = (sorted(schema.attributes) if schema else []) or ["axis"]
    name = random.choice([*names, *(a.name for a in node.attribute)])
    kept = [a for a in node.attribute if a.name != name]
    ints = [random.choice(INTS) for _ in range(random.choice((0, 1, 2, 4, 6, 8)))]
    small = [random.choice((-2, -1, 0, 1, 2, 3)) for _ in range(random.choice((0, 1, 2, 3, 4)))]
    value = random.choice((random.choice(INTS), random.choice(FLOATS), random.choice(TEXTS), ints, small, [0.5, -1.0]))
    declared = next((a.type for a in node.attribute if a.name == name), None)
    if declared == onnx.AttributeProto.INT and random.random() < 0.7:
        value = random.choice(INTS)
    elif declared == onnx.AttributeProto.INTS and random.random() < 0.7:
        value = small or ints
    del node.attribute[:]
    if isinstance(value, list) and not value:
        made = onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
    else:
        made = helper.make_attribute(name, value)
    node.attribute.extend([*kept, made])


def shape(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """A declared shape: another size, another name, another rank, another element type."""
    infos = [m for m in _messages(model) if isinstance(m, onnx.TypeProto.Tensor)]
    tensor: Any = random.choice(infos)
    what = random.random()
    if what < 0.2:
        tensor.elem_type = random.randrange(0, 28)
    elif what < 0.3:
        tensor.ClearField("shape")
    elif what < 0.5:
        tensor.shape.dim.add(dim_value=random.choice(INTS))
    else:
        dim = random.choice(list(tensor.shape.dim))
        if random.random() < 0.5:
            dim.dim_value = random.choice(INTS)
        else:
            dim.dim_param = random.choice(TEXTS)


def weight(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """A tensor's elements, dims, type or place."""
    tensors = [m for m in _messages(model) if isinstance(m, onnx.TensorProto)]
    tensor: Any = random.choice(tensors)
    what = random.choice(("dims", "type", "bytes", "values", "external", "empty"))
    if what == "dims":
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(INTS)
    elif what == "type":
        tensor.data_type = random.randrange(0, 28)
    elif what == "bytes":
        tensor.raw_data = noisy(random, tensor.raw_data)
    elif what == "values":
        array = onnx.numpy_helper.to_array(tensor).copy()
        flat = array.reshape(-1)
        flat[random.randrange(flat.size)] = random.choice((-1, 0, 1, 2, 5, 100, -100, 2**15, 2**31 - 1))
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    elif what == "external":
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key in random.sample(("location", "offset", "length", "checksum"), random.randrange(1, 5)):
            text = random.choice(("weights", "0", "4", "16", "-1", "x", str(2**63), "9" * 5000, "../weights", "²"))
            tensor.external_data.add(key=key, value="weights" if key == "location" and random.random() < 0.8 else text)
    else:
        for name in ("raw_data", "float_data", "int64_data", "int32_data", "string_data"):
            tensor.ClearField(name)


def opset(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """Another opset, or an import that is missing or given twice."""
    if random.random() < 0.7:
        random.choice(list(model.opset_import)).version = random.choice((*range(1, 30), 0, -1, 10**9))
    else:
        model.opset_import.append(helper.make_opsetid(random.choice(TEXTS), random.choice((1, 7, 21))))


def duplicate(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """A node, input, output or initializer once more: under the same name, or renamed and chained."""
    graph = random.choice(_graphs(model))
    items = random.choice((graph.node, graph.node, graph.input, graph.output, graph.initializer))
    items.add().CopyFrom(items[random.randrange(len(items))])
    if items is graph.node and random.random() < 0.7:
        items[-1].output[:] = [f"{o}_again" for o in items[-1].output]


def nested(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """A node moves into the branches of an If, whose names shadow those outside, or do not."""
    graph = random.choice(_graphs(model))
    node = graph.node[random.randrange(len(graph.node))]
    outs = [o for o in node.output if o]
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    shadow = random.random() < 0.5
    inner.output[:] = [o if shadow else f"{o}_inner" for o in node.output]
    results = [onnx.ValueInfoProto(name=o if shadow else f"{o}_inner") for o in outs]
    for result in results:
        result.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    body = helper.make_graph([inner], "body", [], results)
    condition = random.choice(("flag", *_names(graph)))
    model.graph.initializer.append(helper.make_tensor("flag", onnx.TensorProto.BOOL, [], [random.random() < 0.5]))
    node.CopyFrom(helper.make_node("If", [condition], outs, then_branch=body, else_branch=body))


def spliced(random: Random, model: onnx.ModelProto, seeds: Sequence[bytes]) -> None:
    """The nodes of another seed are added, fed by this one's values."""
    other = onnx.ModelProto.FromString(random.choice(seeds))
    mine = [n for n in _names(model.graph) if n]
    theirs = {i.name for i in other.graph.input}
    for node in other.graph.node[:20]:
        added = model.graph.node.add()
        added.CopyFrom(node)
        added.input[:] = [random.choice(mine) if x in theirs else f"o_{x}" if x else x for x in node.input]
        added.output[:] = [f"o_{x}" if x else x for x in node.output]
    for tensor in other.graph.initializer:
        added_tensor = model.graph.initializer.add()
        added_tensor.CopyFrom(tensor)
        added_tensor.name = f"o_{tensor.name}"
    random.choice(list(model.graph.output)).name = model.graph.node[-1].output[0]


MUTATIONS: tuple[Mutation, ...] = (
    any_field, edge, operator, attribute, shape, weight, opset, duplicate, nested, spliced,
)  # fmt: skip
WEIGHTS = (6, 3, 2, 4, 3, 3, 1, 1, 1, 2)
