"""The free dims of a graph's inputs: fixed by name or by denotation, or held between bounds."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from webrt import dims as D
from webrt.compiler.options import CompileOptions
from webrt.errors import InputError
from webrt.ir import Graph


def fix(graph: Graph, model: onnx.ModelProto, options: CompileOptions) -> None:
    """Puts the sizes of `options.free_dims` and `options.denotations` for the dims, their bounds into `graph.ranges`,
    and checks of these into `graph.checks`. Raises InputError for a name or a denotation that no input has, and for a
    contradiction."""
    sizes: dict[str, int] = {}
    for name, size in options.free_dims.items():
        if isinstance(size, int):
            sizes[name] = size
    used = {name for v in graph.inputs for d in v.shape or () for name in D.variables(d)}
    for name in options.free_dims:
        if name not in used:
            raise InputError(
                f"no input has a dim named {name!r}; the free dims are {', '.join(sorted(used)) or 'none'}"
            )
    for name, size in _denoted(graph, model, options.denotations).items():
        if sizes.setdefault(name, size) != size:
            raise InputError(f"the dim {name!r} is {sizes[name]} by its name and {size} by its denotation")
    if sizes:
        for v in graph.inputs:
            if v.shape is not None:
                v.shape = tuple(D.substitute(d, dict(sizes)) for d in v.shape)
    for name, bounds in options.free_dims.items():
        if not isinstance(bounds, int):
            low, high = bounds
            holds = D.mul(D.lt(low - 1, D.var(name)), D.lt(D.var(name), high + 1))
            graph.checks[holds] = f"the dim {name!r} has to be from {low} to {high}"
            graph.ranges = {**graph.ranges, name: bounds}


def _denoted(graph: Graph, model: onnx.ModelProto, denotations: Mapping[str, int]) -> dict[str, int]:
    """The sizes, by name, of the dims that the model's inputs denote so."""
    declared = {i.name: i.type.tensor_type.shape.dim for i in model.graph.input}
    found: dict[str, int] = {}
    seen: set[str] = set()
    for value in graph.inputs:
        for proto, size in zip(declared.get(value.name, ()), value.shape or (), strict=False):
            wanted = denotations.get(proto.denotation)
            if wanted is None:
                continue
            seen.add(proto.denotation)
            named = sorted(D.variables(size))
            if size != wanted and (not named or found.setdefault(named[0], wanted) != wanted):
                raise InputError(
                    f"{value.name!r} has a {proto.denotation} of {found.get(named[0]) if named else size}, not {wanted}"
                )
    for name in denotations:
        if name not in seen:
            known = sorted({d.denotation for dims in declared.values() for d in dims if d.denotation})
            raise InputError(f"no input has a dim of denotation {name!r}; there are {', '.join(known) or 'none'}")
    return found
