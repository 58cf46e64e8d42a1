"""Strings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from webrt.errors import InvalidModel, ShapeError, UnsupportedType
from webrt.host.registry import Call, op
from webrt.host.values import Array


def _need_strings(x: Array) -> None:
    if x.dtype != object:
        raise UnsupportedType(f"strings are needed, got {x.dtype}; cast to string first")


def _objects(values: list[object], shape: tuple[int, ...]) -> Array:
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


@op("StringConcat")
def string_concat(call: Call, a: Array, b: Array) -> Array:
    """Strings joined pairwise, broadcast."""
    _need_strings(a)
    return np.asarray(a + b, dtype=object)


@op("StringSplit")
def string_split(call: Call, x: Array) -> tuple[Array, Array]:
    """The parts of each string, padded with empty ones, and how many there are."""
    _need_strings(x)
    delimiter, limit = call.get("delimiter") or None, call.get("maxsplit")
    parts = [w.split(delimiter, -1 if limit is None else int(limit)) for w in x.reshape(-1).tolist()]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    width = max((len(p) for p in parts), default=0)
    padded = [w for p in parts for w in (*p, *[""] * (width - len(p)))]
    return _objects(padded, (*x.shape, width)), counts


@op("RegexFullMatch")
def regex_full_match(call: Call, x: Array) -> Array:
    """Whether a pattern matches the whole of each string."""
    _need_strings(x)
    try:
        pattern = re.compile(call.text("pattern"))
    except re.error as error:
        raise InvalidModel(f"the pattern {call.text('pattern')!r} is no regular expression ({error})") from None
    return np.array([pattern.fullmatch(w) is not None for w in x.reshape(-1).tolist()], bool).reshape(x.shape)


@op("StringNormalizer")
def string_normalizer(call: Call, x: Array) -> Array:
    """Strings in one case, without stop words; at least one empty string remains."""
    _need_strings(x)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ShapeError(f"[C] or [1, C] is needed, got {x.shape}")
    action, sensitive = call.text("case_change_action").upper(), bool(call.integer("is_case_sensitive"))
    stops = call.strings("stopwords")
    stop_set = set(stops) if sensitive else {s.lower() for s in stops}
    kept = [w for w in x.reshape(-1).tolist() if (w if sensitive else w.lower()) not in stop_set]
    changes: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    change = changes.get(action)
    if change is None:
        raise InvalidModel(f"case_change_action {action!r} is not one that ONNX defines")
    words: list[object] = [change(w) for w in kept] or [""]
    return _objects(words, (len(words),) if x.ndim == 1 else (1, len(words)))


@op("TfIdfVectorizer")
def tf_idf(call: Call, x: Array) -> Array:
    """Counts, weights, or weighted counts of the n-grams in a pool, for each row."""
    table = _ngrams(call)
    indexes = call.ints("ngram_indexes") or []
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    result = np.zeros((rows.shape[0], max(indexes, default=-1) + 1), np.float32)
    for i, row in enumerate(rows.tolist()):
        for column, count in _count(call, table, row).items():
            result[i, column] = count
    mode, weights = call.text("mode"), call.floats("weights")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise InvalidModel(f"mode {mode!r} is not one that ONNX defines")
    if mode != "TF":
        factor = np.array(weights, np.float32) if weights else np.ones(result.shape[1], np.float32)
        result = np.where(result > 0, 1, 0) * factor if mode == "IDF" else result * factor
    return result.astype(np.float32).reshape(result.shape[1:] if x.ndim < 2 else result.shape)


def _ngrams(call: Call) -> dict[tuple[object, ...], int]:
    pool: list[object] = list(call.strings("pool_strings") or call.ints("pool_int64s") or [])
    starts, indexes = call.ints("ngram_counts") or [], call.ints("ngram_indexes") or []
    table: dict[tuple[object, ...], int] = {}
    number = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        for i in range(start, end, n):
            table.setdefault(tuple(pool[i : i + n]), indexes[number])
            number += 1
    return table


def _count(call: Call, table: dict[tuple[object, ...], int], row: list[object]) -> Counter[int]:
    found: Counter[int] = Counter()
    shortest, longest = call.integer("min_gram_length"), call.integer("max_gram_length")
    for distance in range(1, call.integer("max_skip_count") + 2):
        for n in range(shortest if distance == 1 else max(shortest, 2), longest + 1):
            for start in range(len(row) - (n - 1) * distance):
                column = table.get(tuple(row[start : start + (n - 1) * distance + 1 : distance]))
                if column is not None:
                    found[column] += 1
    return found
