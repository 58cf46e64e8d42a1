"""What values take on samples of the inputs: their ranges, and where a range is best cut.

The threshold that loses least is that of the smallest Kullback-Leibler divergence between the distribution and its
quantised form (Migacz, "8-bit inference with TensorRT", 2017).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from webrt.compiler import export
from webrt.errors import InputError
from webrt.host.graph import GraphRunner
from webrt.host.values import HostValue
from webrt.ir import Graph

Array = np.ndarray[Any, Any]
Sample: TypeAlias = Mapping[str, Array]
BINS = 2048
LEVELS = 128
"""Steps of one sign; a range without negative numbers has twice as many."""


@dataclass
class Range:
    """The values seen of one tensor: the smallest and the largest finite one, and |value| in BINS bins up to `top`."""

    low: float = 0.0
    high: float = 0.0
    counts: Array = field(default_factory=lambda: np.zeros(BINS))

    @property
    def top(self) -> float:
        return max(-self.low, self.high)

    def widen(self, array: Array) -> None:
        finite = array[np.isfinite(array)]
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def count(self, array: Array) -> None:
        if self.top > 0:
            finite = np.abs(array[np.isfinite(array)])
            self.counts += np.histogram(finite, bins=BINS, range=(0.0, self.top))[0]

    def cut(self) -> tuple[float, float]:
        """The range without the tails that cost more precision than they are worth."""
        bound = self.top * best_threshold(self.counts, LEVELS if self.low < 0 else 2 * LEVELS) / BINS
        return max(self.low, -bound), min(self.high, bound)


def runner(graph: Graph) -> GraphRunner:
    """The graph on the CPU."""
    return GraphRunner.from_model(export.to_model(graph))


def outputs_of(graph: Graph, sample: Sample) -> dict[str, Array]:
    """The tensors among the graph's outputs, by name. Raises InputError where the sample is no input of the graph."""
    made = runner(graph).run(_fitting(graph, sample))
    return {v.name: a for v, a in zip(graph.outputs, made, strict=True) if isinstance(a, np.ndarray)}


def ranges_of(graph: Graph, samples: Sequence[Sample], names: Collection[str], bins: bool) -> dict[str, Range]:
    """The range of each named float tensor over all samples (inputs among them); with `bins` their distribution too."""
    found = {name: Range() for name in names}
    ready = runner(graph)
    for step in ("widen", "count") if bins else ("widen",):

        def observe(name: str, value: HostValue, step: str = step) -> None:
            if name in found and isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating):
                getattr(found[name], step)(value)

        for sample in samples:
            feeds = _fitting(graph, sample)
            for name, array in feeds.items():
                observe(name, array)
            ready.run(feeds, observe=observe)
    return found


def best_threshold(counts: Array, levels: int) -> int:
    """How many of the bins of |value| to keep, `levels` at least. `counts` has one number per bin.

    Zero is exact whatever the scale is, so the first bin, where all zeros are, counts as its neighbour does."""
    counts = np.concatenate([counts[1:2], counts[1:]])
    if not counts[levels:].any():
        return levels
    best, least = len(counts), np.inf
    for kept in range(levels, len(counts) + 1, 16):
        loss = _divergence(counts, kept, levels)
        if loss < least:
            best, least = kept, loss
    return best


def _divergence(counts: Array, kept: int, levels: int) -> float:
    """Kullback-Leibler of the first `kept` bins (the tail in the last) from the same in `levels` steps."""
    real = counts[:kept].astype(np.float64)
    full = real > 0
    step = np.arange(kept) * levels // kept
    sums = np.bincount(step, weights=real, minlength=levels)
    used = np.bincount(step, weights=full, minlength=levels)
    rough = np.where(full, (sums / np.maximum(used, 1))[step], 0.0)
    real[-1] += counts[kept:].sum()
    if not rough.any():
        return float("inf")
    p, q = real / real.sum(), rough / rough.sum()
    seen = p > 0
    if (q[seen] == 0).any():
        q = np.where(seen & (q == 0), 1e-9, q)
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


def _fitting(graph: Graph, sample: Sample) -> dict[str, Array]:
    wanted = {v.name: v for v in graph.inputs if v.const is None}
    missing, extra = sorted(wanted.keys() - sample.keys()), sorted(sample.keys() - wanted.keys())
    if missing or extra:
        raise InputError(f"a sample lacks {missing or 'nothing'} and has {extra or 'nothing'} that is no input")
    for name, value in wanted.items():
        if not isinstance(sample[name], np.ndarray):
            raise InputError(f"sample of {name!r}: a {type(sample[name]).__name__}, no numpy array")
        shape, dtype = sample[name].shape, str(sample[name].dtype)
        sizes = value.shape
        fits = sizes is None or (
            len(sizes) == len(shape)
            and all(not isinstance(d, int) or d == s for d, s in zip(sizes, shape, strict=True))
        )
        if not fits or (value.dtype is not None and dtype not in (value.dtype.name, "object")):
            raise InputError(f"sample of {name!r}: {dtype}{list(shape)}, expected {value}")
    return dict(sample)
