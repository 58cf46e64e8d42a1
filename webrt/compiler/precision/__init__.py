"""Models in fewer bits: the graph before → the graph as `options.precision` wants it, and what that costs.

These passes change numbers, so they run only when asked for, once, between the basic passes and the partition.
"""

from __future__ import annotations

from typing import Any

from webrt.compiler.options import Precision
from webrt.compiler.precision import half, nbits, static
from webrt.compiler.precision.calibrate import Sample, outputs_of
from webrt.compiler.precision.report import difference
from webrt.errors import InputError
from webrt.ir import Graph

BITS = {"int8": 8, "int4": 4}
METHODS = ("minmax", "entropy")


def apply(graph: Graph, wanted: Precision) -> None:
    """Rewrites the graph. `graph.meta["precision"]` tells what was done, and, where samples are given, the difference
    of the outputs of the first one. Types and shapes of new values are left to inference.

    Raises InputError where the wishes contradict each other, or a sample does not fit the graph's inputs.
    """
    if wanted.weights not in ("", *BITS):
        raise InputError(f"weights of {wanted.weights!r}; choose {' or '.join(BITS)}")
    if wanted.method not in METHODS:
        raise InputError(f"no calibration is named {wanted.method!r}; choose {' or '.join(METHODS)}")
    if wanted.int8 and (wanted.f16 or wanted.weights):
        raise InputError("static int8 cannot be combined with f16 or quantised weights; choose one")
    if wanted.int8 and not wanted.samples:
        raise InputError("static int8 needs samples of the inputs to calibrate with (`--sample`, or Precision.samples)")
    samples = [dict(s) for s in wanted.samples]
    before = outputs_of(graph, samples[0]) if samples else None
    told: dict[str, Any] = {}
    if wanted.int8:
        told["int8"] = static.quantize(graph, samples, wanted.method)
    if wanted.weights:
        told[wanted.weights] = nbits.quantize_weights(graph, BITS[wanted.weights], wanted.block)
    if wanted.f16:
        told["f16"] = half.to_half(graph, samples)
    if before is not None:
        told["difference"] = difference(before, outputs_of(graph, samples[0]))
    graph.meta["precision"] = told


__all__ = ["Sample", "apply"]
