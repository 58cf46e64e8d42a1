"""Random pieces of cases: sizes, shapes, values, opsets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from tests.conformance import samples as S
from tests.conformance.samples_data import Array
from tests.kernels.elementwise_values import SPECIAL, integers
from webrt.dtypes import BY_NAME, SMALL

MAX_ELEMENTS = 3000
SIZES = (3, 1, 2, 4, 5, 6, 7, 8, 9, 63, 64, 65)
HALF = ("float16", "bfloat16")


def numpy_type(name: str) -> np.dtype[Any]:
    """numpy's type of a device type."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


# What no case has, since ONNX leaves it open or onnxruntime does not do what the text says.
EXCLUDED = {
    "Slice": 'ends of INT_MAX with a negative step: "for negative stepping it is clamped to [-1, dims[axes[i]]-1]" '
    "(Slice-13); onnxruntime reads it as the end of a backward slice",
    "Shrink": "large integers: onnxruntime rounds them to f32, ONNX's formula has no such step",
    "Sign": "NaN in 16 bits: ONNX says nothing of it; onnxruntime gives NaN in f32 and 0 in f16",
    "ScatterElements": 'indices that occur twice without a reduction: "indices should not have duplicate entries"',
    "ScatterND": 'the same: "indices should not have duplicate entries"',
    "Div": "integers by 0, and the lowest by -1: C leaves them open, ONNX says nothing",
    "Mod": "integers by 0: as Div",
    "BitShift": "by the type's width or more: C leaves it open, ONNX says nothing",
    "Cast": 'of floats that the integer type has not: "fixed point: undefined if OOR" (Cast-28)',
    "LSTM": 'a clip: it "is applied to the input of activations", h among them (LSTM-22); onnxruntime leaves out h',
    "MaxPool": "auto_pad SAME_* with dilations, as in all pools: ceil(input_spatial_shape[i] / strides[i]) "
    "elements (MaxPool-22); onnxruntime's shape depends on the dilation",
    "ReduceLogSumExp": "integers: the function of ReduceLogSumExp-18 computes in doubles, onnxruntime in integers",
    "ReduceProd": "integers that overflow: ONNX says nothing",
    "Resize": "align_corners with scales that give no whole length: onnxruntime rounds length_resized first; the node "
    "case resize_downsample_scales_linear_align_corners does not",
    "ReduceMax": 'of nothing: "Reduction over an empty set of values yields minus infinity (if supported by the '
    'datatype) or the minimum value of the data type otherwise"; onnxruntime refuses it',
    "ReduceMean": 'of nothing: "Reduction over an empty set of values yields undefined"',
}


class Draw:
    """Structure comes from `random` (hypothesis shrinks it), values from one seed of it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.values = np.random.default_rng(random.getrandbits(32))

    def number(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return self.random.randint(low, high)

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return options[self.random.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        """True with so many percent."""
        return self.random.randrange(100) >= 100 - percent

    def opset(self, op: str, since: int = 7, until: int = S.NEWEST, domain: str = "") -> int:
        """An opset at which the operator's schema changed, or the first or last one allowed."""
        versions = S.since_versions((domain, op)) if not domain else frozenset[int]()
        return int(self.pick(until, *sorted({since, *(v for v in versions if since <= v <= until)})))

    def type(self, op: str, opset: int, parameter: str = "T", *, only: Sequence[str] = (), domain: str = "") -> str:
        """A type that the schema has for the parameter and devices hold, of `only` these. The small ones, which numpy
        lacks, are swept in test_types.py."""
        held = [n for n in S.types_of((domain, op), opset, parameter) if BY_NAME[n] not in SMALL]
        names = [n for n in held if not only or n in only]
        return str(self.pick(*([n for n in names if n == "float32"] * 2), *names))

    def shape(self, low: int = 0, high: int = 5, *, empty: bool = True) -> tuple[int, ...]:
        """A shape of low … high axes, of few elements."""
        out: list[int] = []
        for _ in range(self.number(low, high)):
            fits = [n for n in SIZES if n * math.prod(out) <= MAX_ELEMENTS]
            out.append(0 if empty and self.chance(4) else self.pick(*fits))
        return tuple(out)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        kept = list(shape[self.number(0, len(shape)) if self.chance(40) else 0 :])
        return tuple(1 if self.chance(30) else n for n in kept)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.number(-rank, rank - 1)

    def wild(self, name: str, shape: Sequence[int]) -> Array:
        """Values of a type: special ones among plain ones."""
        if name == "bool":
            return np.asarray(self.values.integers(0, 2, tuple(shape)) > 0)
        if numpy_type(name).kind in "iu":
            return np.asarray(self.values.choice(integers(name), tuple(shape)))
        plain = self.values.standard_normal(tuple(shape)) * self.pick(1.0, 10.0, 0.1)
        special = self.values.choice(SPECIAL, tuple(shape))
        with np.errstate(over="ignore"):
            mixed = np.where(self.values.random(tuple(shape)) < 0.3, special, plain)
            return np.asarray(mixed, np.float32).astype(numpy_type(name))

    def exact(self, name: str, shape: Sequence[int], low: int = -16, high: int = 16, unit: int = 8) -> Array:
        """Multiples of 1/unit for floats, else integers, from low to high units: sums of products of them are exact."""
        kind = numpy_type(name).kind
        if kind == "b":
            return np.asarray(self.values.integers(0, 2, tuple(shape)) > 0)
        numbers = self.values.integers(max(low, 0) if kind == "u" else low, high + 1, tuple(shape))
        return np.asarray(numbers if kind in "iu" else numbers / unit).astype(numpy_type(name))

    def normal(self, name: str, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Normal numbers."""
        return np.asarray(self.values.standard_normal(tuple(shape)) * scale, np.float32).astype(numpy_type(name))

    def indices(self, count: int, shape: Sequence[int], *, negative: bool = True, name: str = "int64") -> Array:
        """Indices into an axis of `count` elements."""
        return self.values.integers(-count if negative else 0, count, tuple(shape)).astype(name)
