"""The compile half in one page: no device, no network, one input.

source ─▶ frontend ─▶ normalize ─▶ partition ─▶ fuse ─▶ lower ─▶ memory ─▶ emit ─▶ Plan
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from webrt import dims as D
from webrt import dtypes as T
from webrt import known
from webrt.bounds import Bounds, told
from webrt.compiler import (
    dump,
    emit,
    export,
    free_dims,
    frontend,
    fuse,
    in_place,
    islands,
    lower,
    memory,
    normalize,
    order,
    partition,
    parts,
    places,
    wishes,
)
from webrt.compiler.body import Control, every
from webrt.compiler.infer import infer, is_variable, variables_for
from webrt.compiler.lines import Lines
from webrt.compiler.opening import Bodies
from webrt.compiler.options import CompileOptions
from webrt.compiler.partition import Demands, Placed
from webrt.errors import ModelError, NotConstant, PlacementError, counted
from webrt.ir import Graph, Value
from webrt.plan import Plan
from webrt.target import Target

logger = logging.getLogger("webrt")


STAGES = ("frontend", "normalize", "partition", "fuse", "lower", "memory", "emit")
MAX_ATTEMPTS = 8


@told(ModelError, "compiling")
def compile_model(source: frontend.Source, options: CompileOptions | None = None) -> Plan:
    """The plan of a model.

    Raises ModelError for a model that cannot be compiled, PlacementError in strict mode, and NotConstant with `roots`
    where elements of graph inputs decide shapes: give them as `known_inputs`. With `assumed` it has `conditions` too.
    TargetError where the target has a feature that WebGPU lacks, InputError for options that no compilation knows.
    """
    options = options or CompileOptions()
    wishes.check(options)
    options.target.check_features()
    bounds = Bounds.of(options.seconds, options.memory)
    model = frontend.read_model(source, options.external_data, bounds)
    structural: set[str] = set()
    trace = dump.trace_of(options.passes)
    for _ in range(MAX_ATTEMPTS):
        graph, placed, demands, optimized = _front_half(model, options, structural, trace, bounds)
        fresh = demands.structural - structural
        if not fresh:
            break
        structural |= fresh
    _refuse_unknowns(graph, demands, options)
    if demands.refused:
        raise demands.refused[0]
    if options.strict:
        refuse_cpu_nodes(placed)
    extended = _extended(graph, options)
    if not options.strict:
        placed = _arranged(graph, placed, options, extended, trace)
    if extended:
        _report(options, "fuse")
        placed = _fused(graph, placed, options.target, extended, trace)
    if optimized is not None:
        export.annotate(optimized, placed, extended, graph.places)
        _write(optimized, options)
    plan = _back_half(graph, placed, options, structural)
    trace.plan(plan)
    if options.progress is not None:
        options.progress("done", len(STAGES), len(STAGES))
    return plan


def _refuse_unknowns(graph: Graph, demands: Demands, options: CompileOptions) -> None:
    """Raises NotConstant for what the caller can give and has not."""
    roots = demands.roots if demands.roots - set(options.known_inputs) else set()
    conditions = demands.conditions if options.assumed is not None else {}
    what = [f"the elements of the inputs {', '.join(sorted(roots))}"] if roots else []
    what += [f"the sizes {', '.join(sorted(conditions))}"] if conditions else []
    if what:
        shapes = {v.name: v.shape for v in graph.inputs if v.shape is not None}
        raise NotConstant(
            f"{' and '.join(what)} decide shapes or kernels; give {'them as known inputs' if roots else 'fixed sizes'}",
            roots=frozenset(roots),
            conditions=conditions,
            shapes={k: tuple(d if isinstance(d, int) else D.text(d) for d in s) for k, s in shapes.items()},
        )


def refuse_cpu_nodes(placed: list[Placed]) -> None:
    """Raises PlacementError naming every node that would run on the CPU."""
    lines = [f"{p.node.op} {p.node.name!r}: {p.reason}" for p in every(placed) if p.how == "host"]
    if lines:
        shown = "; ".join(lines[:10]) + (f"; and {len(lines) - 10} more" if len(lines) > 10 else "")
        raise PlacementError(f"{counted(len(lines), 'node')} would run on the CPU, which the session forbids: {shown}")


def _front_half(
    model: onnx.ModelProto, options: CompileOptions, structural: set[str], trace: dump.Trace, bounds: Bounds
) -> tuple[Graph, list[Placed], Demands, onnx.ModelProto | None]:
    """The graph and who runs what; and the graph as a model before it was placed, where that is asked for."""
    _report(options, "frontend")
    graph = frontend.load(model, options.known_inputs)
    graph.bounds, graph.assumed = bounds, options.assumed or {}
    free_dims.fix(graph, model, options)
    graph.places, graph.adapter = places.of(model, options.places, options.providers), options.target.kind
    _report(options, "normalize")
    opener = Bodies(options.runs) if "webgpu" in options.providers else None
    wanted = normalize.normalize(graph, structural, options.runs, trace, opener)
    structural -= {v.name for v in graph.values() if v.name in structural and not is_variable(v)}
    _in_fewer_bits(graph, options, structural)
    _split_constants(graph)
    wants_model = options.optimized_path is not None or options.optimized is not None
    optimized = export.to_model(graph) if wants_model else None
    if options.precision.asked:
        wanted |= normalize.normalize(graph, structural, options.runs, trace)
    _report(options, "partition")
    placed, demands = partition.partition(graph, options.providers, options.target, structural)
    if placed:
        placed[0].checks += graph.checks.items()
    by_name = {v.name: v for v in graph.values()}
    for name in wanted:
        if name in by_name:
            _demand(by_name[name], by_name, demands)
    return graph, placed, demands, optimized


def _extended(graph: Graph, options: CompileOptions) -> list[str]:
    """The extended passes to run: those of the level, or the ones that an optimised model was placed with."""
    names = [islands.NAME, order.NAME, *(name for name, _ in fuse.PASSES)]
    if options.level in ("extended", "all"):
        return [name for name in names if options.runs(name)]
    named = str(graph.meta.get("custom_metadata_map", {}).get(export.EXTENDED, "")).split()
    return [name for name in names if name in named and name not in options.disabled]


def _arranged(
    graph: Graph, placed: list[Placed], options: CompileOptions, passes: Sequence[str], trace: dump.Trace
) -> list[Placed]:
    """After those of the passes that are about two providers."""
    lines = Lines(placed, set(graph.outputs), options.target)
    if islands.NAME in passes:
        trace.extended(islands.NAME, lines, lambda lines: islands.move_islands(lines, graph, options.free_dims))
    if order.NAME in passes:
        trace.extended(order.NAME, lines, order.join_segments)
    return lines.placed


def _write(model: onnx.ModelProto, options: CompileOptions) -> None:
    if options.optimized is not None:
        options.optimized(export.to_bytes(model))
    if options.optimized_path is not None:
        export.save_model(model, options.optimized_path, options.optimized_data)


def _fused(
    graph: Graph, placed: list[Placed], target: Target, passes: Sequence[str], trace: dump.Trace
) -> list[Placed]:
    """After these extended passes, in bodies too."""
    for p in placed:
        for step in p.steps:
            for body in step.bodies if isinstance(step, Control) else ():
                body.placed = _fused(body.graph, body.placed, target, passes, dump.Trace())
    return fuse.fuse(graph, placed, target, passes.__contains__, trace)


def _back_half(graph: Graph, placed: list[Placed], options: CompileOptions, structural: set[str]) -> Plan:
    graph.bounds.check("fusing")
    _report(options, "lower")
    items = lower.lower(placed)
    wants_parts, in_places = "parts" not in options.disabled, "in_place" not in options.disabled
    if wants_parts:
        placed = list(placed)
        items = in_place.reuse(graph, items, copied=False) if in_places else items
        items = parts.share(graph, items, placed)
    if in_places:
        items = in_place.reuse(graph, items)
    graph.bounds.check("lowering")
    _report(options, "memory")
    graph.bounds.check("memory")
    assigned = memory.assign(graph, items, options.target.limit("maxStorageBufferBindingSize"))
    _report(options, "emit")
    meta = {
        "overridable": [_describe(v) for v in graph.overridable],
        "structural": sorted(structural),
        "live_bytes": assigned.live,
    }
    if graph.ranges:
        meta["bounds"] = {name: [*graph.ranges[name]] for name in sorted(graph.ranges)}
    fixed = [v for v in graph.inputs if v.name in options.known_inputs]
    if fixed:
        meta["known"] = {
            v.name: known.described(frontend.as_array(v, options.known_inputs[v.name]), str(v.dtype)) for v in fixed
        }
    return emit.emit(graph, placed, items, assigned, options.target, structural, meta)


def _in_fewer_bits(graph: Graph, options: CompileOptions, structural: set[str]) -> None:
    """What `options.precision` asks for, before the optimised model is written: folding would undo the packing."""
    if options.precision.asked:
        from webrt.compiler import precision

        precision.apply(graph, options.precision)
        normalize.remove_dead(graph)
        infer(graph, structural)


def _demand(value: Value, by_name: Mapping[str, Value], demands: Demands) -> None:
    found = variables_for([value], by_name)
    if found:
        demands.structural |= found
    elif value.roots and "" not in value.roots and value.const is None:
        demands.roots |= value.roots


def _split_constants(graph: Graph) -> None:
    """Constants that a plan cannot carry (strings, complex numbers) become Constant nodes for the host.

    An input that is one (it was fixed) stays an input, under its name, and what read it reads the node's output.
    """
    made: list[Value] = []
    for value in graph.values():
        if value.const is not None and value.dtype is not None and not (value.dtype.on_device or value.dtype == T.F64):
            made.append(value)
    nodes = []
    needed = {*graph.users(), *graph.outputs}
    for value in [v for v in made if v in needed]:
        graph.inputs = [replace(value) if v is value else v for v in graph.inputs]
        node = emit.constant_node(value)
        value.const, value.producer = None, node
        nodes.append(node)
    graph.nodes[:0] = nodes


def _describe(value: Value) -> dict[str, Any]:
    return {"name": value.name, "dtype": str(value.dtype), "shape": list(value.static_shape or ())}


def _report(options: CompileOptions, stage: str) -> None:
    if options.progress is not None:
        options.progress(stage, STAGES.index(stage), len(STAGES))


__all__ = ["CompileOptions", "compile_model", "infer"]
