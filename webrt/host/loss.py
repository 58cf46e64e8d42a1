"""Loss functions."""

from __future__ import annotations

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.registry import Call, op
from webrt.host.softmax import log_softmax
from webrt.host.values import Array, wide


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: Call, x: Array, target: Array, weight: Array | None = None) -> Array:
    """-weight * x at the target class, reduced."""
    return _loss(call, wide(x), target, weight).astype(x.dtype)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(call: Call, x: Array, target: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """The loss of the logarithm of softmax over axis 1, and that logarithm."""
    logs = log_softmax(wide(x), 1)
    return _loss(call, logs, target, weight).astype(x.dtype), logs.astype(x.dtype)


def _loss(call: Call, x: Array, target: Array, weight: Array | None) -> Array:
    if x.ndim < 2 or target.shape != x.shape[:1] + x.shape[2:]:
        raise ShapeError(f"target {target.shape} does not fit {x.shape}; it must be {x.shape[:1] + x.shape[2:]}")
    ignored = call.get("ignore_index")
    skip = np.zeros(target.shape, bool) if ignored is None else target == int(ignored)
    index = np.where(skip, 0, target)
    if index.size and (int(index.min()) < 0 or int(index.max()) >= x.shape[1]):
        raise IndexError(f"the targets lie in [{int(index.min())}, {int(index.max())}], there are {x.shape[1]} classes")
    factor = np.ones(target.shape, x.dtype) if weight is None else wide(weight)[index]
    factor = np.where(skip, 0, factor).astype(x.dtype)
    chosen = np.take_along_axis(x, np.expand_dims(index, 1), 1).squeeze(1)
    loss = np.where(skip, 0, -chosen * factor)
    reduction = call.text("reduction")
    if reduction == "none":
        return loss
    if reduction == "sum":
        return np.asarray(loss.sum())
    if reduction != "mean":
        raise InvalidModel(f"reduction {reduction!r} is not one that ONNX defines")
    if weight is None and ignored is None:
        return np.asarray(loss.mean())
    return np.asarray(loss.sum() / factor.sum())
