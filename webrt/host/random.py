"""Random numbers. The `seed` attribute makes a run repeatable; without it every run draws anew."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, np_dtype, wide


def generator(call: Call) -> np.random.RandomState:
    """A generator seeded by the attribute, or by the system; seeded draws are those of onnx's reference evaluator."""
    seed = call.get("seed")
    return np.random.RandomState(None if seed is None else int(seed) & 0xFFFFFFFF)


def _dtype(call: Call, like: Array | None) -> np.dtype[np.generic]:
    code = int(call.get("dtype", 0) or 0)
    return np_dtype(code) if code else np.dtype(np.float32) if like is None else like.dtype


def _normal(call: Call, shape: tuple[int, ...], like: Array | None) -> Array:
    drawn = generator(call).standard_normal(shape) * call.number("scale") + call.number("mean")
    return np.asarray(drawn).astype(_dtype(call, like))


def _uniform(call: Call, shape: tuple[int, ...], like: Array | None) -> Array:
    low, high = call.number("low"), call.number("high")
    return np.asarray(generator(call).random_sample(shape) * (high - low) + low).astype(_dtype(call, like))


@op("RandomNormal")
def random_normal(call: Call) -> Array:
    """Normal numbers in the shape of an attribute."""
    return _normal(call, tuple(call.ints("shape") or ()), None)


@op("RandomNormalLike")
def random_normal_like(call: Call, x: Array) -> Array:
    """Normal numbers in the shape of the input."""
    return _normal(call, x.shape, x)


@op("RandomUniform")
def random_uniform(call: Call) -> Array:
    """Uniform numbers in the shape of an attribute."""
    return _uniform(call, tuple(call.ints("shape") or ()), None)


@op("RandomUniformLike")
def random_uniform_like(call: Call, x: Array) -> Array:
    """Uniform numbers in the shape of the input."""
    return _uniform(call, x.shape, x)


@op("Bernoulli")
def bernoulli(call: Call, x: Array) -> Array:
    """One with the probability that the input gives, else zero."""
    return np.asarray(generator(call).binomial(1, wide(x))).astype(_dtype(call, x))


@op("Multinomial")
def multinomial(call: Call, x: Array) -> Array:
    """Class numbers drawn by unnormalised log-probabilities [batch, classes]."""
    if x.ndim != 2 or not x.shape[1]:
        raise ShapeError(f"[batch, classes] is needed, got {x.shape}")
    logits = x.astype(np.float64)
    weights = np.cumsum(np.exp(logits - logits.max(1, keepdims=True)), 1)
    drawn = generator(call).random_sample((x.shape[0], call.integer("sample_size"))) * weights[:, -1:]
    found = [np.searchsorted(row, d, side="right") for row, d in zip(weights, drawn)]
    limited = np.minimum(np.array(found).reshape(drawn.shape), x.shape[1] - 1)
    return np.asarray(limited).astype(np_dtype(call.integer("dtype")))


@op("Dropout", until=12)
def dropout_inference(call: Call, x: Array) -> tuple[Array, Array]:
    """Below opset 12 an inference graph drops nothing."""
    return x, np.ones(x.shape, bool if call.opset >= 10 else x.dtype)


@op("Dropout", since=12)
def dropout(call: Call, x: Array, ratio: Array | None = None, training: Array | None = None) -> tuple[Array, Array]:
    """In training, elements dropped with a probability and the rest scaled up; otherwise x."""
    p = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training is None or not bool(training.reshape(-1)[0]) or p == 0:
        return x, np.ones(x.shape, bool)
    mask = generator(call).random_sample(x.shape) >= p
    return np.asarray(wide(x) * mask * (1 / (1 - p))).astype(x.dtype), np.asarray(mask)
