"""The optimizers of ai.onnx.preview.training; outputs keep the types of the tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array

DOMAIN = "ai.onnx.preview.training"


def _groups(tensors: Sequence[Array], kinds: int) -> list[Sequence[Array]]:
    """Tensors, gradients and states of `kinds` kinds in all, tensor by tensor."""
    if not tensors or len(tensors) % kinds:
        raise ShapeError(f"{len(tensors)} tensors are given; a multiple of {kinds} is needed")
    count = len(tensors) // kinds
    return [tensors[i::count] for i in range(count)]


def _ordered(made: Sequence[Sequence[Array]]) -> tuple[Array, ...]:
    """All new tensors, then all new states of each kind."""
    return tuple(x for kind in zip(*made) for x in kind)


def _gradient(call: Call, x: Array, g: Array) -> Array:
    return np.asarray(x.dtype.type(call.number("norm_coefficient")) * x + g)


@op("Momentum", domain=DOMAIN)
def momentum(call: Call, rate: Array, steps: Array, *tensors: Array) -> tuple[Array, ...]:
    """Stochastic gradient descent with (Nesterov's) momentum."""
    made = []
    for x, g, v in _groups(tensors, 3):
        kind = x.dtype.type
        r, alpha = kind(rate.item()), kind(call.number("alpha"))
        beta = kind(call.number("beta") if steps.item() > 0 else 1)
        regular = _gradient(call, x, g)
        new = alpha * v + beta * regular
        nesterov = call.get("mode") == "nesterov"
        made.append((x - r * (regular + alpha * new if nesterov else new), new))
    return _ordered(made)


@op("Adagrad", domain=DOMAIN)
def adagrad(call: Call, rate: Array, steps: Array, *tensors: Array) -> tuple[Array, ...]:
    """Rates divided by the root of the sum of squared gradients."""
    made = []
    for x, g, h in _groups(tensors, 3):
        kind = x.dtype.type
        r = kind(rate.item() / (1 + steps.item() * call.number("decay_factor")))
        regular = _gradient(call, x, g)
        new = h + regular * regular
        made.append((x - r * regular / (np.sqrt(new) + kind(call.number("epsilon"))), new))
    return _ordered(made)


@op("Adam", domain=DOMAIN)
def adam(call: Call, rate: Array, steps: Array, *tensors: Array) -> tuple[Array, ...]:
    """Running means of gradients and of their squares; the rate is corrected for both from the first step on."""
    made, t = [], int(steps.item())
    a, b = call.number("alpha"), call.number("beta")
    corrected = rate.item() * np.sqrt(1 - b**t) / (1 - a**t) if t > 0 else rate.item()
    for x, g, v, h in _groups(tensors, 4):
        kind = x.dtype.type
        alpha, beta, r = kind(a), kind(b), kind(corrected)
        regular = _gradient(call, x, g)
        first = alpha * v + (1 - alpha) * regular
        second = beta * h + (1 - beta) * regular * regular
        moved = x - r * first / (np.sqrt(second) + kind(call.number("epsilon")))
        made.append(((1 - kind(call.number("norm_coefficient_post"))) * moved, first, second))
    return _ordered(made)
