"""The basic passes: they keep a model's meaning exactly and know no provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from webrt import dtypes as T
from webrt import host, lowering
from webrt.compiler import (
    bodies,
    clips,
    control,
    fold_work,
    hoist,
    one_hots,
    packed,
    packing,
    padding,
    projections,
    quantized,
    scans,
    splice,
    sums,
    tidy,
    unroll,
    weights,
)
from webrt.compiler.dump import Trace
from webrt.compiler.infer import guarded, infer
from webrt.compiler.splice import opsets_of
from webrt.errors import InvalidModel, ModelError, WebrtError
from webrt.ir import Graph, Node, Opener, Value, dtype_of

FOLD_LIMIT = 256 << 20
"""Bytes by which folding may make the model larger in all."""

FILLS = frozenset({"ConstantOfShape", "Expand", "Tile", "Range", "EyeLike"})
MAX_FILL = 1 << 20
"""Bytes above which FILLS that make much of little stay: a device runs them faster than it gets their result."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)

Pass = Callable[[Graph], bool]


def inline_functions(graph: Graph) -> bool:
    """Operators without a kernel that have a function body (in their schema or in bodies.py) → its nodes."""
    out: list[Node] = []
    names, changed = splice.fresh_names(graph), False
    for node in graph.nodes:
        body = None if lowering.find(node.domain, node.op_type, node.opset) else _function_body(node)
        out += [node] if body is None else splice.function(node, body, graph.opsets, names)
        changed |= body is not None
    graph.nodes[:] = out
    return changed


def fold_constants(graph: Graph) -> bool:
    """Nodes whose inputs are all constants → constants, while the model grows by no more than FOLD_LIMIT bytes.

    So are sizes that are not free, such as what a Cast makes of them; what only gives sizes stays shape arithmetic.
    FILLS of more than MAX_FILL bytes stay."""
    kept: list[Node] = []
    room = most = min(FOLD_LIMIT - graph.meta.get("folded_bytes", 0), graph.bounds.left)
    for node in graph.nodes:
        graph.bounds.check("folding")
        arrays = _evaluate(node, graph, room) if _is_foldable(node) else None
        if arrays is None:
            kept.append(node)
            continue
        for value, array in zip(node.outputs, arrays, strict=False):
            if value is not None:
                value.const, value.shape, value.producer = array, tuple(array.shape), None
                value.contents = None
                room -= array.nbytes
    changed = len(kept) != len(graph.nodes)
    graph.nodes[:] = kept
    graph.meta["folded_bytes"] = graph.meta.get("folded_bytes", 0) + most - room
    graph.bounds.taken += most - room
    return changed


def merge_equal(graph: Graph) -> bool:
    """Nodes of the same operator, attributes and inputs → one node. Random operators and captured names stay."""
    seen: dict[tuple[Any, ...], Node] = {}
    replaced: dict[Value, Value] = {}
    kept: list[Node] = []
    named = {*graph.outputs, *(v for n in graph.nodes for v in n.outer)}
    for node in graph.nodes:
        node.inputs = [replaced.get(v, v) if v is not None else None for v in node.inputs]
        key = _key(node)
        twin = seen.get(key) if key is not None and not named & {v for v in node.outputs if v} else None
        if twin is not None and all(
            b is not None or a is None for a, b in zip(node.outputs, twin.outputs, strict=False)
        ):
            replaced.update((a, b) for a, b in zip(node.outputs, twin.outputs, strict=False) if a and b)
            continue
        if key is not None:
            seen.setdefault(key, node)
        kept.append(node)
    changed = len(kept) != len(graph.nodes)
    graph.nodes[:] = kept
    return changed


def remove_dead(graph: Graph) -> bool:
    """Nodes none of whose outputs anybody reads → nothing."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs if v is not None):
            needed.update(node.given(), node.outer)
            kept.append(node)
    changed = len(kept) != len(graph.nodes)
    graph.nodes[:] = kept[::-1]
    return changed


PASSES: tuple[tuple[str, Pass], ...] = (
    ("inline_functions", inline_functions),
    ("inline_known_branches", control.inline_known_branches),
    ("unroll_loops", unroll.unroll_loops),
    ("straighten_scans", scans.straighten_scans),
    ("cancel_quantization", quantized.cancel_quantization),
    ("keep_packed", packed.keep_packed),
    ("fold_constants", fold_constants),
    ("remove_identities", tidy.remove_identities),
    ("shorten_chains", tidy.shorten_chains),
    ("look_up_one_hots", one_hots.look_up_one_hots),
    ("fold_into_tables", one_hots.fold_into_tables),
    ("join_clips", clips.join_clips),
    ("add_to_products", sums.add_to_products),
    ("split_batch_norms", weights.split_batch_norms),
    ("join_constants", weights.join_constants),
    ("fold_into_weights", weights.fold_into_weights),
    ("fold_padding", padding.fold_padding),
    ("hoist_elementwise", hoist.hoist_elementwise),
    ("pack_projections", packing.pack_projections),
    ("join_projections", projections.join_projections),
    ("merge_equal", merge_equal),
    ("remove_dead", remove_dead),
)
"""The basic passes, in order."""

FOR_DEVICES = frozenset(
    {"inline_functions", "unroll_loops", "straighten_scans", "keep_packed", "pack_projections", "join_projections"}
)
"""Passes that run only where there is a device: the CPU provider runs operators and loops as they are."""

REQUIRED = frozenset({"inline_functions", "inline_known_branches", "unroll_loops", "straighten_scans", "remove_dead"})
"""Passes that run at every level: without them fewer nodes have a kernel."""

HIGHEST = frozenset({"channels_last"})
"""Passes that run at the level "all" alone."""

NEEDS = {"join_projections": "fuse_attention"}
"""Passes that pay only where an extended one runs."""


def _is_foldable(node: Node) -> bool:
    if node.op_type in RANDOM or node.outer or any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attrs.values()):
        return False
    if any(v is not None and (v.dtype is None or v.dtype == T.STRING) for v in node.outputs):
        return False
    given = _operands(node)
    if all(v is None or v.contents is not None for v in node.outputs) and any(v.const is None for v in given):
        return False
    if any(_elements(v) is None for v in given) or not _size_bounded(node):
        return False
    try:
        with guarded():
            return fold_work.is_quick(node)
    except ModelError:
        return False  # what is wrong with it is told where it is placed


def _operands(node: Node) -> list[Value]:
    """The inputs whose elements matter: of CastLike the first."""
    return node.given()[:1] if node.op_type == "CastLike" else node.given()


def _elements(value: Value, reader: Node | None = None) -> np.ndarray[Any, Any] | None:
    """A constant's elements, or a value's that shape arithmetic tells, as numbers; any where the reader needs none."""
    if reader is not None and value.dtype is not None and value not in _operands(reader):
        return np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(value.dtype.code))
    if value.const is not None or value.contents is None or value.dtype is None:
        return value.const
    known = all(isinstance(d, int) for d in value.contents.flat)
    return value.contents.astype(value.dtype.name) if known else None


def _size_bounded(node: Node) -> bool:
    """Whether every output's size is known beforehand and in bounds, so that a fold cannot run out of memory."""
    given = sum(v.const.nbytes for v in node.given() if v.const is not None)
    limit = max(MAX_FILL, 2 * given) if node.op_type in FILLS else FOLD_LIMIT
    for value in node.outputs:
        if value is not None:
            shape = value.static_shape
            if shape is None or value.dtype is None:
                return False
            if value.dtype.nbytes(int(np.prod(shape, dtype=np.float64))) > limit:
                return False
    return True


def _evaluate(node: Node, graph: Graph, room: int) -> list[np.ndarray[Any, Any]] | None:
    grows = sum(
        v.dtype.nbytes(int(v.elements))
        for v in node.outputs
        if v is not None and v.dtype and isinstance(v.elements, int)
    )
    if grows > max(room, 1024):
        return None
    try:
        results = host.evaluate(
            node.to_proto(), opsets_of(node, graph), [None if v is None else _elements(v, node) for v in node.inputs]
        )
    except WebrtError:
        return None  # left in place: the run reports it, if it is ever reached
    arrays = [np.asarray(r) for r in results]
    fits = all(
        v is None or (v.dtype is not None and _same_type(a, v)) for v, a in zip(node.outputs, arrays, strict=False)
    )
    return arrays if fits else None


def _same_type(array: np.ndarray[Any, Any], value: Value) -> bool:
    return value.dtype is not None and dtype_of(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)) == value.dtype


def _key(node: Node) -> tuple[Any, ...] | None:
    if node.op_type in RANDOM or node.outer:
        return None
    attributes = tuple(sorted((k, a.SerializeToString(deterministic=True)) for k, a in node.attrs.items()))
    return node.op_type, node.domain, node.opset, tuple(id(v) for v in node.inputs), attributes


def _function_body(node: Node) -> onnx.FunctionProto | None:
    own = bodies.body_of(node)
    if own is not None:
        return own
    try:
        schema: Any = node.schema  # onnx's stubs lack the function bodies
    except InvalidModel:
        return None
    body = onnx.FunctionProto()
    if schema.has_function:
        body.CopyFrom(schema.function_body)
        return body
    if schema.has_context_dependent_function and all(v.dtype is not None for v in node.given()):
        types = [onnx.TypeProto() if v is None else _type(v) for v in node.inputs]
        serialized = [t.SerializeToString() for t in types]
        text = schema.get_context_dependent_function(node.to_proto().SerializeToString(), serialized)
        body.ParseFromString(text)
        return body if body.node else None
    return None


def _type(value: Value) -> onnx.TypeProto:
    shape = None if value.shape is None else [d if isinstance(d, int) else str(d) for d in value.shape]
    return onnx.helper.make_tensor_type_proto(value.dtype.code if value.dtype else 0, shape)


def normalize(
    graph: Graph, structural: set[str], enabled: Callable[[str], bool], trace: Trace, opener: Opener | None = None
) -> set[str]:
    """Runs the enabled PASSES until nothing changes, inferring in between; returns what inference asked for in vain.

    Control flow that is left then is opened, and the passes run again with what is known of its results."""
    wanted = infer(graph, structural)
    for _ in range(32):
        changed = False
        for name, run in PASSES:
            graph.bounds.check(name)
            if enabled(name) and trace.basic(name, graph, run):
                changed = True
        if not changed:
            opened = opener is None or graph.opener is not None
            if opened or not any(n.op in control.CONTROL for n in graph.nodes):
                return wanted
            graph.opener = opener
        wanted = infer(graph, structural)
    return wanted
