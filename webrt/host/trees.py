"""Tree ensembles, all rows and all trees at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.linear import class_labels, post_transform
from webrt.host.ml import ML
from webrt.host.registry import Call, op
from webrt.host.values import Array

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
_MODES = {
    "BRANCH_LEQ": LEQ, "BRANCH_LT": LT, "BRANCH_GTE": GTE, "BRANCH_GT": GT, "BRANCH_EQ": EQ, "BRANCH_NEQ": NEQ,
    "LEAF": LEAF,
}  # fmt: skip


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees in flat arrays; a leaf leads to itself. `weights` [nodes, targets] are what leaves add."""

    mode: Array
    feature: Array
    split: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    members: dict[int, Array]
    leaf_rows: Array
    leaf_of: Array
    leaf_target: Array
    leaf_weight: Array

    def leaves(self, x: Array) -> Array:
        """The node index [rows, trees] where each row ends."""
        at = np.broadcast_to(self.roots, (x.shape[0], self.roots.size)).copy()
        rows = np.arange(x.shape[0])[:, None]
        for _ in range(self.mode.size + 1):
            inner = self.mode[at] != LEAF
            if not inner.any():
                return at
            value = x[rows, self.feature[at]]
            go = self._test(value, self.mode[at], self.split[at], at) | (np.isnan(value) & self.missing[at])
            at = np.where(inner, np.where(go, self.yes[at], self.no[at]), at)
        raise InvalidModel("the trees have a cycle; re-export the model")

    def _test(self, value: Array, mode: Array, split: Array, at: Array) -> Array:
        tests = {
            LEQ: value <= split, LT: value < split, GTE: value >= split, GT: value > split, EQ: value == split,
            NEQ: value != split,
        }  # fmt: skip
        result = np.zeros(value.shape, bool)
        for kind, outcome in tests.items():
            result |= (mode == kind) & outcome
        for node, members in self.members.items():
            result |= (at == node) & np.isin(value, members)
        return result

    def scores(self, x: Array, targets: int, how: str, dtype: Any) -> tuple[Array, Array]:
        """Weights of the leaves combined per target [rows, targets], and where a target got any."""
        at = self.leaves(x)
        total = np.zeros((x.shape[0], targets), np.float64)
        any_score = np.zeros(total.shape, bool)
        combine = {"MIN": np.minimum, "MAX": np.maximum}.get(how)
        for tree in range(at.shape[1]):
            for depth in range(int(self.leaf_rows[:, 1].max(initial=0))):
                start, count = self.leaf_rows[at[:, tree]].T
                rows = np.flatnonzero(depth < count)
                entry = self.leaf_of[start[rows] + depth]
                column, weight = self.leaf_target[entry], self.leaf_weight[entry]
                old = total[rows, column]
                if combine is None:
                    total[rows, column] = old + weight
                else:
                    total[rows, column] = np.where(any_score[rows, column], combine(old, weight), weight)
                any_score[rows, column] = True
        if how == "AVERAGE":
            total /= max(self.roots.size, 1)
        return total.astype(dtype), any_score


def _pick(call: Call, name: str) -> Array:
    tensor = call.get(f"{name}_as_tensor")
    return np.asarray(call.floats(name), np.float32) if tensor is None else np.asarray(tensor)


def _leaf_table(size: int, nodes: Array) -> tuple[Array, Array]:
    """Per node, where its entries start and how many there are; entries sorted by node."""
    order = np.argsort(nodes, kind="stable")
    count = np.bincount(nodes, minlength=size)
    start = np.cumsum(count) - count
    return np.stack([start, count], 1), order


def _forest(call: Call, prefix: str) -> Forest:
    """The trees of the operators before version 5: nodes are named by tree and number."""
    trees, numbers = np.array(call.ints("nodes_treeids")), np.array(call.ints("nodes_nodeids"))
    place = {key: i for i, key in enumerate(zip(trees.tolist(), numbers.tolist()))}
    mode = np.array([_MODES.get(m, -1) for m in call.strings("nodes_modes")])
    if (mode < 0).any():
        raise InvalidModel("a mode in nodes_modes is not one that ONNX defines")
    targets = _index(place, call.ints(f"{prefix}_treeids"), call.ints(f"{prefix}_nodeids"))
    following = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        ends = call.ints(name) or []
        following.append(
            np.array([i if m == LEAF else place[t, n] for i, (m, t, n) in enumerate(zip(mode, trees.tolist(), ends))])
        )
    _, first = np.unique(trees, return_index=True)
    inner = np.concatenate([f[mode != LEAF] for f in following])
    roots = np.setdiff1d(np.arange(mode.size), inner) if inner.size else first
    rows, order = _leaf_table(mode.size, targets)
    missing = np.array(call.ints("nodes_missing_value_tracks_true") or [0] * mode.size, bool)
    weight = _pick(call, f"{prefix}_weights")
    return Forest(
        mode, np.array(call.ints("nodes_featureids")), _pick(call, "nodes_values"), following[0], following[1], missing,
        np.sort(roots), {}, rows, order, np.array(call.ints(f"{prefix}_ids")), weight,
    )  # fmt: skip


def _index(place: dict[tuple[int, int], int], trees: list[int] | None, nodes: list[int] | None) -> Array:
    return np.array([place[key] for key in zip(trees or [], nodes or [])], np.int64)


def _rows(x: Array) -> Array:
    if x.ndim not in (1, 2):
        raise ShapeError(f"[rows, features] is needed, got {x.shape}")
    flat = x.reshape(1, -1) if x.ndim == 1 else x
    return flat if flat.dtype == np.float64 else flat.astype(np.float32)


@op("TreeEnsembleRegressor", domain=ML)
def tree_regressor(call: Call, x: Array) -> Array:
    """Leaf weights combined over the trees."""
    targets = call.integer("n_targets", 1)
    values = _rows(x)
    total, _ = _forest(call, "target").scores(values, targets, call.text("aggregate_function", "SUM"), values.dtype)
    base = _pick(call, "base_values")
    total = total + base.astype(total.dtype) if base.size else total
    return post_transform(call.text("post_transform", "NONE"), np.asarray(total)).astype(np.float32)


@op("TreeEnsembleClassifier", domain=ML)
def tree_classifier(call: Call, x: Array) -> tuple[Array, Array]:
    """The label of the best class for each row, and the scores."""
    labels = class_labels(call, "classlabels_strings", "classlabels_int64s")
    forest, values = _forest(call, "class"), _rows(x)
    base, name = _pick(call, "base_values"), call.text("post_transform", "NONE")
    total, _ = forest.scores(values, max(labels.size, 2), "SUM", np.float32)
    used = np.unique(forest.leaf_target)
    if labels.size > 2 or used.size != 1 or base.size > 1:
        total = total + base.astype(np.float32) if base.size == total.shape[1] else total
        return labels[np.argmax(total, 1)], post_transform(name, np.asarray(total)).astype(np.float32)
    positive, score = bool((forest.leaf_weight >= 0).all()), total[:, int(used[0])]
    if used[0] == 1:
        label, _ = _binary(labels, score, positive, "NONE")
        return label, post_transform(name, total).astype(np.float32)
    return _binary(labels, np.asarray(score + (base[0] if base.size else 0), np.float32), positive, name)


def _binary(labels: Array, score: Array, positive: bool, name: str) -> tuple[Array, Array]:
    """Two classes from one score: a probability where all weights are positive, else a margin (as in ONNX Runtime)."""
    chosen = (score > (0.5 if positive else 0)).astype(np.int64)
    if labels.size == 1:
        label = np.where(chosen == 1, labels[0], 0 if labels.dtype != object else "")
    else:
        label = labels[chosen]
    if name == "PROBIT":
        return np.asarray(label), post_transform(name, score[:, None]).astype(np.float32)
    scores = np.stack([1 - score if positive and name != "LOGISTIC" else -score, score], 1)
    return np.asarray(label), post_transform(name, scores).astype(np.float32)


_AGGREGATE = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORM = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@op("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(call: Call, x: Array) -> Array:
    """Version 5: inner nodes and leaves are separate lists."""
    modes = np.asarray(call.tensor("nodes_modes")).astype(np.int64)
    inner = modes.size
    yes, no = (_target(call, inner, side) for side in ("true", "false"))
    leaf_target = np.array(call.ints("leaf_targetids"))
    leaves = leaf_target.size
    both = np.arange(inner + leaves)
    tail = np.zeros(leaves, np.int64)
    rows, order = _leaf_table(inner + leaves, both[inner:])
    missing = np.array(call.ints("nodes_missing_value_tracks_true") or [0] * inner, bool)
    forest = Forest(
        np.concatenate([modes, tail + LEAF]), np.concatenate([np.array(call.ints("nodes_featureids")), tail]),
        np.concatenate([np.asarray(call.tensor("nodes_splits"), np.float64), tail.astype(np.float64)]),
        np.concatenate([yes, both[inner:]]), np.concatenate([no, both[inner:]]),
        np.concatenate([missing, tail.astype(bool)]), np.array(call.ints("tree_roots")), _members(call, modes), rows,
        order, leaf_target, np.asarray(call.tensor("leaf_weights")),
    )  # fmt: skip
    how, name = _AGGREGATE[call.integer("aggregate_function")], _TRANSFORM[call.integer("post_transform")]
    total, _ = forest.scores(x.astype(np.float64), call.integer("n_targets", 1), how, np.float64)
    return post_transform(name, total).astype(x.dtype)


def _target(call: Call, inner: int, side: str) -> Array:
    """Where a branch leads: leaves are numbered behind the inner nodes."""
    ends, leaf = call.ints(f"nodes_{side}nodeids") or [], call.ints(f"nodes_{side}leafs") or []
    return np.array([e + inner if is_leaf else e for e, is_leaf in zip(ends, leaf)], np.int64)


def _members(call: Call, modes: Array) -> dict[int, Array]:
    """The set of each member node: runs of the membership values between NaNs."""
    values = call.tensor("membership_values")
    nodes = np.flatnonzero(modes == MEMBER).tolist()
    if values is None:
        if nodes:
            raise InvalidModel("BRANCH_MEMBER nodes without membership_values; re-export the model")
        return {}
    runs = np.split(values, np.flatnonzero(np.isnan(values)))
    return {node: run[~np.isnan(run)] for node, run in zip(nodes, runs)}
