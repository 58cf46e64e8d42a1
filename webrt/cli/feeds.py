"""The inputs of `webrt run`: arrays from files and from the command line, random values for the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from webrt.cli.options import once, read_array, read_arrays, read_json
from webrt.errors import InputError

Array = np.ndarray[Any, Any]

IMAGE_SIZE = 224
OTHER_SIZE = 8
_FROM_ORT = {"float": "float32", "double": "float64"}


class Argument(Protocol):
    """An input as `InferenceSession.get_inputs` describes it (webrt.signature.NodeArg)."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def shape(self) -> Sequence[int | str | None]: ...


def make_feeds(
    inputs: Sequence[Argument],
    given: Sequence[str],
    dims: Mapping[str, int],
    seed: int,
    fixed: Collection[str] = (),
) -> tuple[dict[str, Any], list[str]]:
    """A value for each input but those in `fixed` that are not given, and lines about what was made up.

    `given` holds texts NAME=FILE.npy, NAME=FILE.npz, NAME=JSON or FILE.npz (an array for each input by its name, or by
    `in:` and its name beside others); `dims` sizes of free dims. Raises InputError or WebrtError, naming the input, the
    dim or the file.
    """
    by_name = {i.name: i for i in inputs}
    _refuse_other_dims(inputs, dims)
    feeds: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for text in given:
        found = _read(text, by_name)
        if len(found) == 1 and text.startswith(f"{(name := next(iter(found)))}="):
            texts |= once("input", [*texts.items(), (name, text[len(name) + 1 :])])
        feeds.update(found)
    sizes, random, notes = {**_given_sizes(inputs, feeds, dims), **dims}, np.random.default_rng(seed), []
    given_sizes = set(sizes)
    for info in inputs:
        if info.name not in feeds and info.name not in fixed:
            feeds[info.name] = value = _made_up(info, sizes, random)
            notes.append(f"{info.name}: random {value.dtype}{list(value.shape)}, seed {seed}")
    chosen = [f"{name}={size}" for name, size in sizes.items() if name not in given_sizes]
    if chosen:
        notes.append(f"made-up sizes {', '.join(chosen)}; choose others with --dim NAME=SIZE")
    return feeds, notes


def _given_sizes(inputs: Sequence[Argument], feeds: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, int]:
    """Sizes of free dims by the inputs that were given. Raises InputError where `dims` says otherwise."""
    found: dict[str, int] = {}
    for info in inputs:
        shape = tuple(getattr(feeds.get(info.name), "shape", ()))
        free = [axis for axis, d in enumerate(info.shape) if not isinstance(d, int) and len(shape) == len(info.shape)]
        for axis in free:
            name, size = _dim(info, axis), shape[axis]
            if dims.get(name, size) != size:
                raise InputError(f"--dim {name}={dims[name]}, but the given input {info.name!r} has {name} {size}")
            found.setdefault(name, size)
    return found


def dtype_of(info: Argument) -> str:
    """numpy's name of an input's element type; raises InputError for what is no tensor."""
    if not (info.type.startswith("tensor(") and info.type.endswith(")")):
        raise InputError(f"input {info.name!r} is {info.type or 'no tensor'}; the command line gives tensors only")
    name = info.type[7:-1]
    return _FROM_ORT.get(name, name)


def _read(text: str, inputs: Mapping[str, Argument]) -> dict[str, Any]:
    name = next((n for n in sorted(inputs, key=len, reverse=True) if text.startswith(f"{n}=")), None)
    if name is None:
        if "=" not in text and text.endswith(".npz"):
            arrays = read_arrays(Path(text))
            return {key[3:]: array for key, array in arrays.items() if key.startswith("in:")} or dict(arrays)
        raise InputError(f"{text!r} names no input; the inputs are {', '.join(inputs) or 'none'}")
    value = text[len(name) + 1 :]
    if value.endswith((".npy", ".npz")):
        return {name: read_array(Path(value), name)}
    return {name: read_json(name, value, dtype_of(inputs[name]))}


def _made_up(info: Argument, sizes: dict[str, int], random: np.random.Generator) -> Array:
    """Floats in -1 … 1, integers in 0 … 9, truth values; free sizes as `_size` says, equal for equal names."""
    dtype = dtype_of(info)
    shape = []
    for axis, d in enumerate(info.shape):
        shape.append(d if isinstance(d, int) else sizes.setdefault(_dim(info, axis), _size(axis, info.shape, dtype)))
    if dtype == "string":
        return np.full(shape, "text", dtype=object)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "float" in dtype:
        return _as(random.uniform(-1, 1, shape), dtype, info)
    return _as(random.integers(0, 10, shape), dtype, info)


def _refuse_other_dims(inputs: Sequence[Argument], dims: Mapping[str, int]) -> None:
    free = {_dim(info, axis) for info in inputs for axis, d in enumerate(info.shape) if not isinstance(d, int)}
    for name in dims:
        if name not in free:
            raise InputError(f"no input has a free dim {name!r}; the free dims are {', '.join(sorted(free)) or 'none'}")


def _dim(info: Argument, axis: int) -> str:
    """A free dim's name: its own, or INPUT.AXIS."""
    d = info.shape[axis]
    return d if isinstance(d, str) else f"{info.name}.{axis}"


def _as(values: Array, dtype: str, info: Argument) -> Array:
    try:
        return values.astype(dtype)
    except TypeError as error:
        raise InputError(f"input {info.name!r} is {dtype}; give it: --input {info.name}=FILE.npy") from error


def _size(axis: int, shape: Sequence[int | str | None], dtype: str) -> int:
    """1 for a batch, a picture's usual size for its height and width (float, 1, 3 or 4 channels), else 8."""
    if axis == 0:
        return 1
    picture = len(shape) == 4 and axis >= 2 and shape[1] in (1, 3, 4) and "float" in dtype
    return IMAGE_SIZE if picture else OTHER_SIZE
