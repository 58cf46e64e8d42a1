"""ai.onnx.ml: encoders, scalers and maps. Sources: the operators' texts; where those are vague, what
ONNX Runtime's CPU kernels do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.attributes import strings
from webrt.host.registry import Call, op
from webrt.host.values import Array

ML = "ai.onnx.ml"


def objects(values: Sequence[Any]) -> Array:
    """Values of any kind as an object array."""
    result = np.empty(len(values), dtype=object)
    result[:] = list(values)
    return result


def _float(x: Array) -> Array:
    """Numbers as float32, or float64 where they are."""
    return x if x.dtype == np.float64 else x.astype(np.float32)


@op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(call: Call, x: Array, indices: Array) -> Array:
    """Columns of the last axis."""
    index = indices.reshape(-1)
    if index.size and (int(index.min()) < 0 or int(index.max()) >= x.shape[-1]):
        raise IndexError(f"column {int(index.max())} is out of range for {x.shape[-1]} columns")
    found = np.take(x, index, -1)
    return found.reshape(1, -1) if x.ndim == 1 else found


@op("Binarizer", domain=ML)
def binarizer(call: Call, x: Array) -> Array:
    """One above the threshold, else zero."""
    return (x > call.number("threshold")).astype(x.dtype)


@op("Scaler", domain=ML)
def scaler(call: Call, x: Array) -> Array:
    """(x - offset) * scale, as float32."""
    offset, scale = (np.array(call.floats(name), np.float32) for name in ("offset", "scale"))
    return ((x.astype(np.float32) - offset) * scale).astype(np.float32)


@op("Normalizer", domain=ML)
def normalizer(call: Call, x: Array) -> Array:
    """Rows over their largest, absolute sum, or Euclidean norm; a row of zeros stays."""
    w = x.astype(np.float32)
    norms = {
        "MAX": np.max(w, -1, keepdims=True),
        "L1": np.sum(np.abs(w), -1, keepdims=True),
        "L2": np.sqrt(np.sum(np.square(w), -1, keepdims=True)),
    }
    if call.text("norm") not in norms:
        raise InvalidModel(f"norm {call.text('norm')!r} is not one that ONNX defines")
    norm = norms[call.text("norm")]
    return np.asarray(np.where(norm == 0, w, w / np.where(norm == 0, 1, norm))).astype(np.float32)


@op("Imputer", domain=ML)
def imputer(call: Call, x: Array) -> Array:
    """One value replaced, in each column by its own or by a common one."""
    if x.dtype.kind == "f":
        values, replaced = np.array(call.floats("imputed_value_floats"), x.dtype), call.number("replaced_value_float")
    else:
        values = np.array(call.ints("imputed_value_int64s") or [], x.dtype)
        replaced = call.integer("replaced_value_int64")
    if values.size not in (1, x.shape[-1]):
        raise ShapeError(f"{values.size} imputed values for {x.shape[-1]} columns; one, or one per column, is needed")
    found = np.isnan(x) if replaced != replaced else x == np.asarray(replaced).astype(x.dtype)
    return np.where(found, values, x)


@op("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: Call, *inputs: Array) -> Array:
    """Columns side by side, each input cut or padded to its declared width; as float32."""
    parts = []
    for x, width in zip(inputs, call.ints("inputdimensions") or []):
        rows = x.reshape(x.shape[0] if x.ndim > 1 else 1, -1).astype(np.float32)
        padded = np.zeros((rows.shape[0], width), np.float32)
        padded[:, : min(width, rows.shape[1])] = rows[:, :width]
        parts.append(padded)
    return np.concatenate(parts, 1)


@op("OneHotEncoder", domain=ML)
def one_hot_encoder(call: Call, x: Array) -> Array:
    """One at the category of each element; an unknown one is all zeros, or an error."""
    names = call.strings("cats_strings")
    keys: list[Any] = names or list(call.ints("cats_int64s") or [])
    flat = x.reshape(-1) if names else x.reshape(-1).astype(np.int64)
    place = {k: i for i, k in enumerate(keys)}
    index = np.array([place.get(v, -1) for v in flat.tolist()], np.int64)
    if (index < 0).any() and not call.integer("zeros"):
        raise ValueError(f"{flat[index < 0][0]!r} is not one of the categories")
    return np.asarray(index[:, None] == np.arange(len(keys))).astype(np.float32).reshape(*x.shape, len(keys))


@op("LabelEncoder", domain=ML, until=2)
def label_encoder_1(call: Call, x: Array) -> Array:
    """Strings to their numbers in a list, or numbers to strings."""
    classes = call.strings("classes_strings")
    if x.dtype == object:
        place = {c: i for i, c in enumerate(classes)}
        missing = call.integer("default_int64")
        return np.array([place.get(v, missing) for v in x.reshape(-1).tolist()], np.int64).reshape(x.shape)
    name = call.text("default_string")
    found = [classes[v] if 0 <= v < len(classes) else name for v in x.reshape(-1).tolist()]
    return objects(found).reshape(x.shape)


@op("LabelEncoder", domain=ML, since=2)
def label_encoder(call: Call, x: Array) -> Array:
    """Each element mapped by two lists; NaN keys match NaN, of repeated keys the last counts."""
    keys, values, default = _label_table(call)
    table = {_key(k): v for k, v in zip(keys.tolist(), values.tolist())}
    missing = table.get("NaN", default) if keys.dtype.kind == "f" else default
    found = [table.get(_key(v), missing if v != v else default) for v in x.reshape(-1).tolist()]
    if values.dtype == object:
        return objects(found).reshape(x.shape)
    return np.array(found, values.dtype).reshape(x.shape)


def _key(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def _label_table(call: Call) -> tuple[Array, Array, Any]:
    makers: dict[str, Callable[[Any], Array]] = {
        "floats": lambda v: np.array(v, np.float32), "int64s": lambda v: np.array(v, np.int64), "strings": objects,
        "tensor": np.asarray,
    }  # fmt: skip
    found = []
    for side in ("keys", "values"):
        kinds = [k for k in makers if call.get(f"{side}_{k}") is not None]
        if len(kinds) != 1:
            raise InvalidModel(f"LabelEncoder has {len(kinds)} lists of {side}; it must have one")
        found.append((kinds[0], makers[kinds[0]](call.get(f"{side}_{kinds[0]}"))))
    (_, keys), (kind, values) = found
    if keys.size != values.size:
        raise ShapeError(f"{keys.size} keys and {values.size} values; there must be equally many")
    default = call.get("default_tensor" if kind == "tensor" else f"default_{kind.removesuffix('s')}")
    if kind == "tensor":
        given = None if default is None else np.asarray(default)
        unset: Any = "_Unused" if values.dtype == object else -1 if values.dtype.kind in "iu" else -0.0
        default = unset if given is None or not given.size else given.reshape(-1)[0]
    return strings(keys.reshape(-1)) if keys.dtype == object else keys.reshape(-1), values.reshape(-1), default


@op("CategoryMapper", domain=ML)
def category_mapper(call: Call, x: Array) -> Array:
    """Strings to numbers or numbers to strings, by two lists."""
    names, numbers = call.strings("cats_strings"), call.ints("cats_int64s") or []
    if len(names) != len(numbers):
        raise ShapeError(f"{len(names)} strings and {len(numbers)} numbers; there must be equally many")
    if x.dtype == object:
        table = dict(zip(names, numbers))
        missing = call.integer("default_int64")
        return np.array([table.get(v, missing) for v in x.reshape(-1).tolist()], np.int64).reshape(x.shape)
    back, name = dict(zip(numbers, names)), call.text("default_string")
    return objects([back.get(v, name) for v in x.reshape(-1).tolist()]).reshape(x.shape)


@op("CastMap", domain=ML)
def cast_map(call: Call, x: dict[int, Any]) -> Array:
    """A map's values in the order of its keys, or each at the column of its key: [1, columns]."""
    if call.text("map_form") == "SPARSE":
        width = call.integer("max_map")
        if any(not 0 <= k < width for k in x):
            raise IndexError(f"the keys {sorted(x)} do not fit {width} columns")
        blank: Any = "" if call.text("cast_to") == "TO_STRING" else 0
        values = [x.get(k, blank) for k in range(width)]
    else:
        values = [x[k] for k in sorted(x)]
    plain = [v.item() if isinstance(v, np.generic | np.ndarray) else v for v in values]
    to = call.text("cast_to")
    if to == "TO_STRING":
        return objects([str(v) for v in plain])[None]
    return np.array([[float(v) for v in plain]], np.float32 if to == "TO_FLOAT" else np.float64).astype(
        np.float32 if to == "TO_FLOAT" else np.int64
    )


@op("DictVectorizer", domain=ML)
def dict_vectorizer(call: Call, x: dict[Any, Any] | list[dict[Any, Any]]) -> Array:
    """A map's values at the places of its keys in a vocabulary: [1, words], or a row for each map."""
    words: list[Any] = call.strings("string_vocabulary") or list(call.ints("int64_vocabulary") or [])
    rows = x if isinstance(x, list) else [x]
    values = [np.asarray(v) for row in rows for v in row.values()]
    dtype = values[0].dtype if values else np.dtype(np.float32)
    if dtype.kind in "US":
        dtype = np.dtype(object)
    blank: Any = "" if dtype.kind == "O" else 0
    result = np.full((len(rows), len(words)), blank, dtype)
    place = {w: i for i, w in enumerate(words)}
    for i, row in enumerate(rows):
        for key, value in row.items():
            if key in place:
                result[i, place[key]] = value
    return result


@op("ZipMap", domain=ML)
def zip_map(call: Call, x: Array) -> list[dict[Any, Any]]:
    """A sequence of maps, one per row, from class labels to the row's values."""
    keys: list[Any] = call.strings("classlabels_strings") or list(call.ints("classlabels_int64s") or [])
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        raise ShapeError(f"{len(keys)} labels for values {x.shape}; there must be one per column")
    return [dict(zip(keys, (np.float32(v) for v in row))) for row in rows.tolist()]
