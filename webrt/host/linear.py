"""ai.onnx.ml: linear models, and what all classifiers share."""

from __future__ import annotations

import numpy as np

from webrt.errors import InvalidModel, ShapeError, UnsupportedType
from webrt.host.activation import sigmoid
from webrt.host.ml import ML, objects
from webrt.host.registry import Call, op
from webrt.host.softmax import softmax
from webrt.host.values import Array


def post_transform(name: str, x: Array) -> Array:
    """Scores [rows, classes] through the transform that a node names."""
    if name == "LOGISTIC":
        return sigmoid(x)
    if name == "SOFTMAX":
        return softmax(x)
    if name == "SOFTMAX_ZERO":
        top = np.max(x, -1, keepdims=True)
        zero = np.abs(x) <= 1e-7
        e = np.where(zero, 0, np.exp(x - top))
        return np.asarray(np.where(zero, x * np.exp(-top), e) / np.sum(e, -1, keepdims=True))
    if name == "PROBIT":
        return np.asarray(np.sqrt(x.dtype.type(2)) * _inverse_erf(2 * x - 1))
    if name != "NONE":
        raise InvalidModel(f"post_transform {name!r} is not one that ONNX defines")
    return x


def _inverse_erf(x: Array) -> Array:
    """S. Winitzki, A handy approximation for the error function and its inverse (2008)."""
    log = np.log((1 - x) * (1 + x))
    v = 2 / (np.pi * 0.147) + 0.5 * log
    return np.asarray(np.sign(x) * np.sqrt(np.sqrt(v * v - log / 0.147) - v)).astype(x.dtype)


@op("LinearRegressor", domain=ML)
def linear_regressor(call: Call, x: Array) -> Array:
    """x times coefficients plus intercepts."""
    targets = call.integer("targets")
    return post_transform(call.text("post_transform", "NONE"), _linear(call, x, targets)).astype(np.float32)


def _linear(call: Call, x: Array, targets: int) -> Array:
    weights = np.array(call.floats("coefficients"), np.float32).reshape(targets, -1)
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.shape[-1] != weights.shape[1]:
        raise ShapeError(f"{rows.shape[-1]} features, {weights.shape[1]} coefficients per target; they must agree")
    intercepts = np.array(call.floats("intercepts") or [0.0] * targets, np.float32)
    return np.asarray(rows.astype(np.float32) @ weights.T + intercepts)


def class_labels(call: Call, *names: str) -> Array:
    """The labels that a classifier names, strings or numbers."""
    for name in names:
        found = call.get(name)
        if found:
            return objects(found) if isinstance(found[0], str) else np.array(found, np.int64)
    raise InvalidModel("the classifier names no labels; re-export the model")


@op("LinearClassifier", domain=ML)
def linear_classifier(call: Call, x: Array) -> tuple[Array, Array]:
    """The label with the best score for each row, and the scores."""
    labels = class_labels(call, "classlabels_strings", "classlabels_ints")
    classes = len(call.floats("intercepts") or labels)
    if x.dtype == object:
        raise UnsupportedType("LinearClassifier takes numbers")
    scores = _linear(call, x, classes)
    name = call.text("post_transform", "NONE")
    if classes == 1:
        chosen = _one_score_label(labels, scores[:, 0])
        if labels.size == 2:
            scores = np.concatenate([1 - scores, scores] if name == "NONE" else [-scores, scores], 1)
        return chosen, post_transform(name, scores).astype(np.float32)
    return labels[np.argmax(scores, 1)], post_transform(name, scores).astype(np.float32)


def _one_score_label(labels: Array, score: Array) -> Array:
    if labels.size == 2:
        return np.asarray(labels[(score > 0).astype(np.int64)])
    if labels.dtype == object:
        return np.where(score > 0, labels[0], "")
    return np.where(score > 0, labels[0], 0).astype(np.int64)
