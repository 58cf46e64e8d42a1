"""What the variants of a launch cost, by kind of adapter and by sizes: the table that orders them, and its JSON.

costs.json beside this file was measured by `python -m benchmarks.cost_table`, which adds the rows of the adapter that
it runs on. A row only says which of the variants that may run anyway comes first, so a wrong one can at worst be slow;
where there is none, variants stay in the order in which operators give them. Sizes are taken as tuning takes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from webrt.buckets import bucket_of
from webrt.errors import WebrtError
from webrt.plan import Kernel
from webrt.target import Target

VERSION = 1
WORTH = 0.95
"""What a variant may take of the first one's time, to come before it: other work on the machine is no reason to."""
FILE = Path(__file__).with_name("costs.json")

Key: TypeAlias = "tuple[str, str, tuple[int, ...]]"
"""The kind of adapter, the family of kernels, and the bucket of the sizes."""
_CONST = re.compile(r"^const ([A-Z_0-9]+) = (\w+?)u?;$", re.M)
_TEXTURE = re.compile(r"^@group\(0\) @binding\(\d+\) var (\w+): texture_(storage_)?2d<", re.M)


@dataclass(frozen=True)
class CostTable:
    """Microseconds of variants, by their label."""

    rows: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)

    def costs(self, target: Target, family: str, sizes: Sequence[int]) -> Mapping[str, float]:
        """What was measured at sizes of the bucket, or else of the nearest one: at most a factor of 2 in each."""
        own = adapter_class(target), family, bucket_of(sizes)
        near = [(_apart(key[2], own[2]), key) for key in self.rows if key[:2] == own[:2] and len(key[2]) == len(own[2])]
        apart, key = min(near, default=((), own))
        return self.rows[key] if apart and apart[0] <= 1 else {}

    def merged(self, other: CostTable) -> CostTable:
        """This table with the rows of the other one, which take the place of those for the same."""
        return CostTable({**self.rows, **other.rows})

    def dumps(self) -> str:
        """A text to read, a line for each row, in a fixed order."""
        rows = [
            {"adapter": adapter, "family": family, "sizes": [*sizes], "us": dict(sorted(us.items()))}
            for (adapter, family, sizes), us in sorted(self.rows.items())
        ]
        lines = ",".join(f"\n  {json.dumps(row)}" for row in rows)
        return f'{{\n "version": {VERSION},\n "rows": [{lines}\n ]\n}}\n'


def _apart(one: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """By how many doublings buckets differ: in the size that differs most, and in all."""
    steps = [abs(a.bit_length() - b.bit_length()) for a, b in zip(one, other, strict=True)]
    return max(steps, default=0), sum(steps)


def adapter_class(target: Target) -> str:
    """The kind of adapter that a row is for: "software swiftshader", "gpu ampere", or "any" for plans for every one."""
    return f"{target.kind} {target.architecture or target.vendor}".strip()


def label(kernel: Kernel) -> str:
    """What tells a variant from the others of its family, whatever its epilogue and its workgroups: its constants and
    textures."""
    consts = [f"{name} {value}" for name, value in _CONST.findall(kernel.wgsl) if name != "GROUP"]
    textures = [f"{name} {'storage' if stored else 'sampled'}" for name, stored in _TEXTURE.findall(kernel.wgsl)]
    return ", ".join([*consts, *(t for t in textures if t[0] in "abwx")])


def fastest(costs: Mapping[str, float], labels: Sequence[str]) -> int:
    """Which of the variants, in order of preference, comes first: the fastest, where it takes less than WORTH of the
    time of the first one that was measured."""
    measured = [i for i, name in enumerate(labels) if name in costs]
    best = min(measured, key=lambda i: costs[labels[i]], default=0)
    return best if measured and costs[labels[best]] < WORTH * costs[labels[measured[0]]] else 0


_used: ContextVar[CostTable | None] = ContextVar("costs", default=None)


@contextmanager
def use(table: CostTable) -> Iterator[None]:
    """Compiles with another table than the one that webrt comes with."""
    token = _used.set(table)
    try:
        yield
    finally:
        _used.reset(token)


def current() -> CostTable:
    """The table in use."""
    table = _used.get()
    return shipped() if table is None else table


@cache
def shipped() -> CostTable:
    """The table that webrt comes with. Raises WebrtError where it is damaged."""
    return loads(FILE.read_text(encoding="utf-8"))


def loads(text: str) -> CostTable:
    """A table of its text. Raises WebrtError for the first rule that it breaks."""
    try:
        given = json.loads(text)
    except ValueError as e:
        raise WebrtError(f"the table of costs is damaged: it is no JSON: {e}") from e
    _need(isinstance(given, dict) and set(given) == {"version", "rows"}, "its keys")
    _need(given["version"] == VERSION, f"its version is not {VERSION}")
    _need(isinstance(given["rows"], list), "its rows are no list")
    rows = [_row(row, f"row {i}") for i, row in enumerate(given["rows"])]
    _need(len({key for key, _ in rows}) == len(rows), "two rows are for the same")
    return CostTable(dict(rows))


def _row(row: Any, where: str) -> tuple[Key, Mapping[str, float]]:
    _need(isinstance(row, dict) and set(row) == {"adapter", "family", "sizes", "us"}, f"{where}: its keys")
    adapter, family, sizes, us = row["adapter"], row["family"], row["sizes"], row["us"]
    _need(isinstance(adapter, str) and isinstance(family, str), f"{where}: its adapter and family are no texts")
    _need(isinstance(sizes, list) and all(type(n) is int and n >= 0 for n in sizes), f"{where}: its sizes")
    _need(bucket_of(sizes) == tuple(sizes), f"{where}: its sizes are no powers of two")
    _need(isinstance(us, dict) and len(us) >= 2, f"{where}: it compares nothing")
    _need(all(type(n) in (int, float) and 0 < n < 1e9 for n in us.values()), f"{where}: its times")
    return (adapter, family, tuple(sizes)), us


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise WebrtError(f"the table of costs is damaged: {what}; make it again: python -m benchmarks.cost_table")
