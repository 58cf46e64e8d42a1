"""What a sample is, and the values that samples are made of: few bits each, so that every float type holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MARKS = {"com.microsoft": "ms.", "ai.onnx.preview.training": "training."}


@dataclass(frozen=True, eq=False)
class Sample:
    """A node of `op` that is valid from opset `since` to `until` (None: to the newest).

    `constants` are inputs that are initializers. `symbolic`: whether free sizes leave it on the device, or which
    inputs may have them. `lacks`: why
    onnxruntime does not run this form."""

    op: str
    inputs: tuple[Array | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    since: int = 7
    until: int | None = None
    outputs: int | tuple[bool, ...] = 1
    constants: tuple[int, ...] = ()
    domain: str = ""
    symbolic: bool | tuple[int, ...] = True
    lacks: str = ""

    @property
    def title(self) -> str:
        """The operator with a mark of its domain."""
        return f"{MARKS.get(self.domain, '')}{self.op}"

    def __str__(self) -> str:
        shapes = "".join("-" if x is None else "x".join(map(str, x.shape)) or "s" for x in self.inputs[:1])
        marks = ",".join(f"{k}={v}" for k, v in self.attrs.items() if not isinstance(v, (list, bytes)))
        return f"{self.title}-{self.since}-{shapes}" + (f"-{marks}"[:60] if marks else "")


def s(
    op: str, *inputs: Array | None, since: int = 7, until: int | None = None, outputs: int | tuple[bool, ...] = 1,
    const: Iterable[int] = (), domain: str = "", symbolic: bool | tuple[int, ...] = True,
    lacks: str = "", **attrs: Any,
) -> Sample:  # fmt: skip
    """A sample; the attributes are keywords."""
    return Sample(op, inputs, attrs, since, until, outputs, tuple(const), domain, symbolic, lacks)


def real(*shape: int, seed: int = 0) -> Array:
    """Eighths in [-4, 4], float32."""
    return (np.random.default_rng((seed, *shape)).integers(-32, 33, shape) / 8).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> Array:
    """Eighths in [1/8, 4], float32."""
    return (np.random.default_rng((seed, *shape)).integers(1, 33, shape) / 8).astype(np.float32)


def unit(*shape: int, seed: int = 0) -> Array:
    """Sixty-fourths in [-1, 1], float32."""
    return (np.random.default_rng((seed, *shape)).integers(-64, 65, shape) / 64).astype(np.float32)


def boolean(*shape: int, seed: int = 0) -> Array:
    """True and False."""
    return np.asarray(np.random.default_rng((seed, *shape)).integers(0, 2, shape) > 0)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: Any = np.int32, seed: int = 0) -> Array:
    """Integers in [low, high)."""
    return np.random.default_rng((seed, *shape)).integers(low, high, shape).astype(dtype)


def i64(*values: int) -> Array:
    """An int64 vector."""
    return np.array(values, np.int64)


def f32(*values: float) -> Array:
    """A float32 vector."""
    return np.array(values, np.float32)


def scalar(value: float, dtype: Any = np.float32) -> Array:
    """A rank-0 tensor."""
    return np.array(value, dtype)
