"""Support vector machines. Sources: libsvm (C.-C. Chang and C.-J. Lin) and, for the labels, ONNX Runtime."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.activation import sigmoid
from webrt.host.linear import class_labels, post_transform
from webrt.host.ml import ML
from webrt.host.registry import Call, op
from webrt.host.values import Array


def _numbers(call: Call, name: str) -> Array:
    return np.array(call.floats(name), np.float64)


def _kernel(call: Call, x: Array, vectors: Array, kind: str) -> Array:
    """[rows, vectors] of kernel values."""
    if x.shape[1] != vectors.shape[1]:
        raise ShapeError(f"{x.shape[1]} features, the support vectors have {vectors.shape[1]}; they must agree")
    gamma, offset, degree = (*call.floats("kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        return np.asarray(np.exp(-gamma * np.square(x[:, None] - vectors).sum(2)))
    dot = x @ vectors.T
    if kind == "LINEAR":
        return np.asarray(dot)
    if kind == "POLY":
        return np.asarray((gamma * dot + offset) ** degree)
    if kind == "SIGMOID":
        return np.tanh(gamma * dot + offset)
    raise InvalidModel(f"kernel_type {kind!r} is not one that ONNX defines")


def _rows(x: Array) -> Array:
    return (x.reshape(1, -1) if x.ndim == 1 else x).astype(np.float64)


@op("SVMRegressor", domain=ML)
def svm_regressor(call: Call, x: Array) -> Array:
    """The decision value of each row, or its sign for a one-class machine."""
    rows, count = _rows(x), call.integer("n_supports", 0)
    coefficients = _numbers(call, "coefficients")
    if count:
        vectors = _numbers(call, "support_vectors").reshape(count, -1)
        score = _kernel(call, rows, vectors, call.text("kernel_type")) @ coefficients
    else:
        score = _kernel(call, rows, coefficients[None], "LINEAR")[:, 0]
    score = score + _numbers(call, "rho")[0]
    if call.integer("one_class"):
        score = np.where(score > 0, 1.0, -1.0)
    column = np.asarray(score[:, None], np.float32)
    return post_transform(call.text("post_transform", "NONE"), column).astype(np.float32)


@op("SVMClassifier", domain=ML)
def svm_classifier(call: Call, x: Array) -> tuple[Array, Array]:
    """The label with the most votes for each row, and decision values or probabilities."""
    labels, rows = class_labels(call, "classlabels_strings", "classlabels_ints"), _rows(x)
    per_class = call.ints("vectors_per_class") or []
    coefficients, rho = _numbers(call, "coefficients"), _numbers(call, "rho")
    if sum(per_class):
        scores, votes = _pairwise(call, rows, labels.size, per_class, coefficients, rho)
    else:
        scores = _kernel(call, rows, coefficients.reshape(labels.size, -1), "LINEAR") + rho[0]
        votes = scores
    probable = bool(call.floats("prob_a")) and bool(sum(per_class))
    if probable:
        scores = _probabilities(call, scores, labels.size)
    chosen = np.argmax(votes, 1)
    if rho.size == 1 and labels.size == 2 and not probable and bool((coefficients >= 0).all()):
        chosen = np.where(votes.max(1) >= 0.5, 1, chosen)
    return np.asarray(labels[chosen]), _written(call, scores.astype(np.float32), labels.size, rho.size)


def _written(call: Call, scores: Array, classes: int, pairs: int) -> Array:
    name = call.text("post_transform", "NONE")
    if scores.shape[1] > 1 or classes != 2 or pairs != 1 or name == "PROBIT":
        return post_transform(name, scores).astype(np.float32)
    return post_transform(name, np.concatenate([-scores, scores], 1)).astype(np.float32)


def _pairwise(
    call: Call, x: Array, classes: int, per_class: list[int], coefficients: Array, rho: Array
) -> tuple[Array, Array]:
    """Decision values of all pairs of classes, and how many of them each class wins."""
    total, ends = sum(per_class), np.cumsum([0, *per_class])
    vectors = _numbers(call, "support_vectors").reshape(total, -1)
    kernel, weights = _kernel(call, x, vectors, call.text("kernel_type")), coefficients.reshape(-1, total)
    scores = np.zeros((x.shape[0], classes * (classes - 1) // 2))
    votes = np.zeros((x.shape[0], classes))
    for n, (i, j) in enumerate(combinations(range(classes), 2)):
        a, b = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        scores[:, n] = kernel[:, a] @ weights[j - 1, a] + kernel[:, b] @ weights[i, b] + rho[n]
        votes[:, i] += scores[:, n] > 0
        votes[:, j] += scores[:, n] <= 0
    return scores, votes


def _probabilities(call: Call, scores: Array, classes: int) -> Array:
    """Class probabilities by coupling the pairs' (T.-F. Wu, C.-J. Lin and R. C. Weng, 2004)."""
    a, b = _numbers(call, "prob_a"), _numbers(call, "prob_b")
    pair = np.clip(sigmoid(-(scores * a + b)), 1e-7, 1 - 1e-7)
    result = np.zeros((scores.shape[0], classes))
    for row in range(scores.shape[0]):
        r = np.zeros((classes, classes))
        for n, (i, j) in enumerate(combinations(range(classes), 2)):
            r[i, j], r[j, i] = pair[row, n], 1 - pair[row, n]
        result[row] = _couple(r)
    return result


def _couple(r: Array) -> Array:
    """libsvm's iteration for the probabilities that fit pairwise ones best."""
    k = r.shape[0]
    q = -r.T * r
    np.fill_diagonal(q, np.square(r).sum(0))
    p = np.full(k, 1 / k)
    for _ in range(max(100, k)):
        product = q @ p
        mean = p @ product
        if np.abs(product - mean).max() < 0.005 / k:
            break
        for t in range(k):
            step = (mean - product[t]) / q[t, t]
            p[t] += step
            mean = (mean + step * (step * q[t, t] + 2 * product[t])) / (1 + step) ** 2
            product = (product + step * q[t]) / (1 + step)
            p = p / (1 + step)
    return p
