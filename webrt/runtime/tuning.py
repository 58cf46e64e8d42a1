"""Which alternative of a dispatch was measured to be the fastest on an adapter: a table, its JSON, where it is kept.

A table is a hint: it can only choose among alternatives that may run anyway, so one of a stranger can at worst choose
slower ones. web/player/tuning.js has the twin; tests/unit/bad_tunings.json is the table that both are tested on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from webrt import planjson
from webrt.errors import InputError, PlanError, WebrtError
from webrt.files import atomic_file, plain_file
from webrt.plan import Kernel, Plan
from webrt.runtime.device import Command, Device, Launch, Range
from webrt.runtime.log import Log
from webrt.target import Target

VERSION = 1
BUDGET = 2.0
"""Seconds that a session measures, where nothing else is said."""
USER_CACHE = "user-cache"
"""As a file's name: a file of the adapter in the user's cache folder."""
MATTERING = (
    "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupStorageSize", "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage", "maxTextureDimension2D",
)  # fmt: skip
"""The limits that a table is for."""
ADAPTER = ("vendor", "architecture", "device", "description", "backend")
MAX_FILE = 1 << 24
MAX_ENTRIES = 20_000
MAX_KERNELS = 64
MAX_BUCKET = 256
MAX_TEXT = 400
MAX_MICROSECONDS = 10**9

Key: TypeAlias = "tuple[tuple[str, ...], tuple[int, ...]]"
"""The hashes of the alternatives that may run, in order of preference, and the bucket of the sizes."""
Work: TypeAlias = "tuple[Kernel, Sequence[Command]]"
"""A kernel, and commands that run it."""
Timer: TypeAlias = Callable[[Device, Sequence[Work], Range, "float | None"], list[float]]
"""Seconds that each work takes on a device; waits for them by reading the range, for so many seconds at most."""


class Adapted(Protocol):
    """A device as far as a table needs it."""

    @property
    def target(self) -> Target: ...

    @property
    def adapter(self) -> Mapping[str, str]: ...


class Entry(NamedTuple):
    """What was measured of alternatives: `names` and microseconds of the kernels, and the hash of the chosen one."""

    names: tuple[str, ...]
    chosen: str
    us: tuple[float, ...]


@dataclass
class Table:
    """Entries for one adapter with these limits."""

    adapter: Mapping[str, str]
    limits: Mapping[str, int]
    entries: dict[Key, Entry] = field(default_factory=dict)

    def chosen(self, key: Key) -> str | None:
        """The hash of the kernel to take."""
        entry = self.entries.get(key)
        return entry.chosen if entry else None

    def mentions(self, hashes: Set[str]) -> set[str]:
        """The kernels of these that may be chosen at some sizes."""
        return {e.chosen for (kernels, _), e in self.entries.items() if hashes >= set(kernels)}

    def add(self, other: Table) -> None:
        """Takes what is in the other one and not in this."""
        self.entries = {**other.entries, **self.entries}

    def to_json(self) -> dict[str, Any]:
        """As `parse` takes it."""
        entries = [
            {"kernels": [*kernels], "names": [*e.names], "bucket": [*bucket], "chosen": e.chosen, "us": [*e.us]}
            for (kernels, bucket), e in self.entries.items()
        ]
        return {"version": VERSION, "adapter": dict(self.adapter), "limits": dict(self.limits), "entries": entries}

    def dumps(self) -> str:
        """A text to read: a line for each entry."""
        made = self.to_json()
        lines = ",\n".join(f"  {json.dumps(e)}" for e in made.pop("entries"))
        return json.dumps(made, indent=1)[:-2] + f',\n "entries": [\n{lines}\n ]\n}}\n'


def empty(device: Adapted) -> Table:
    """The table of a device's adapter, without entries."""
    adapter = {k: str(device.adapter.get(k, ""))[:MAX_TEXT] for k in ADAPTER}
    return Table(adapter, limits_of(device.target))


def limits_of(target: Target) -> dict[str, int]:
    """The limits that matter."""
    return {name: target.limit(name) for name in MATTERING}


def parse(given: Any) -> Table:
    """A table of its JSON, parsed. Raises PlanError for what breaks a rule, the first that is broken."""
    _need(isinstance(given, dict) and set(given) == {"version", "adapter", "limits", "entries"}, "its keys")
    _need(_is_int(given["version"]) and given["version"] == VERSION, f"its version is not {VERSION}")
    adapter, limits, entries = given["adapter"], given["limits"], given["entries"]
    _need(isinstance(adapter, dict) and set(adapter) == set(ADAPTER), "its adapter's keys")
    _need(all(_is_text(x) for x in adapter.values()), "its adapter's texts")
    _need(isinstance(limits, dict) and set(limits) == set(MATTERING), "its limits' keys")
    _need(all(_is_int(x) and x >= 0 for x in limits.values()), "its limits are no sizes")
    _need(isinstance(entries, list) and len(entries) <= MAX_ENTRIES, "its entries are no list, or too many")
    return Table(adapter, limits, dict(_entry(e, f"entry {i}") for i, e in enumerate(entries)))


def loads(text: str) -> Table:
    """A table of its text. Raises PlanError for what is none."""
    try:
        given = json.loads(text, parse_constant=planjson.no_number)
    except (ValueError, RecursionError) as e:
        raise PlanError("the tuning is damaged: it is no JSON") from e
    return parse(given)


def fitting(given: Table, own: Table) -> Table:
    """A table for the same adapter as `own`. Raises PlanError where it is for another."""
    for what, theirs, mine in (("adapter", given.adapter, own.adapter), ("limits", given.limits, own.limits)):
        if theirs != mine:
            raise PlanError(f"the tuning is for another {what}: {_words(theirs)}; this one is {_words(mine)}")
    return given


def _words(named: Mapping[str, Any]) -> str:
    return ", ".join(str(v) for v in named.values() if v != "")


def _entry(e: Any, where: str) -> tuple[Key, Entry]:
    _need(isinstance(e, dict) and set(e) == {"kernels", "names", "bucket", "chosen", "us"}, f"{where}: its keys")
    kernels, names, bucket, us = e["kernels"], e["names"], e["bucket"], e["us"]
    _need(
        _is_list(kernels, MAX_KERNELS) and len(kernels) >= 2, f"{where}: its kernels are no list of 2 to {MAX_KERNELS}"
    )
    _need(
        all(map(_is_text, kernels)) and len({*kernels}) == len(kernels), f"{where}: its kernels are no different texts"
    )
    _need(
        _is_list(names, MAX_KERNELS) and len(names) == len(kernels) and all(map(_is_text, names)), f"{where}: its names"
    )
    _need(_is_list(bucket, MAX_BUCKET) and all(map(_is_power, bucket)), f"{where}: its bucket has no powers of two")
    _need(_is_text(e["chosen"]) and e["chosen"] in kernels, f"{where}: its choice is none of its kernels")
    _need(_is_list(us, MAX_KERNELS) and len(us) == len(kernels) and all(map(_is_time, us)), f"{where}: its times")
    return (tuple(kernels), tuple(bucket)), Entry(tuple(names), e["chosen"], tuple(us))


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise PlanError(f"the tuning is damaged: {what}")


def _is_int(x: Any) -> bool:
    return (type(x) is int or (type(x) is float and x.is_integer())) and abs(x) < 1 << 53


def _is_text(x: Any) -> bool:
    return isinstance(x, str) and len(x) <= MAX_TEXT


def _is_list(x: Any, most: int) -> bool:
    return isinstance(x, list) and len(x) <= most


def _is_power(x: Any) -> bool:
    return _is_int(x) and 0 <= x <= 1 << 32 and int(x) & (int(x) - 1) == 0


def _is_time(x: Any) -> bool:
    return type(x) in (int, float) and 0 <= x <= MAX_MICROSECONDS


def on_device(device: Device, works: Sequence[Work], wait: Range, timeout: float | None) -> list[float]:
    """The `Timer` of a device: by timestamp queries in one submit, by the host's clock where there are none; on a
    software adapter by the process's CPU time, on which other processes have little influence."""
    every = [c for _, commands in works for c in commands]
    stamps = None if device.target.kind == "software" else device.stamps(len(every))
    if stamps is None:
        return [_alone(device, commands, wait, timeout) for _, commands in works]
    device.submit(every, [wait], stamps, timeout)
    times = iter(stamps.read())
    spans = [[next(times) for _ in commands] for _, commands in works]
    return [max(0, max(e for _, e in span) - min(b for b, _ in span)) / 1e9 for span in spans]


def _alone(device: Device, commands: Sequence[Command], wait: Range, timeout: float | None) -> float:
    clock = time.process_time if device.target.kind == "software" else time.perf_counter
    start = clock()
    device.submit(commands, [wait], timeout=timeout)
    took = clock() - start
    if clock is time.perf_counter:
        return took
    groups = max(c.x * c.y * c.z for c in commands if isinstance(c, Launch))
    return took / min(groups, os.cpu_count() or 1)


@dataclass
class Tuning:
    """A session's table. While `measure` is true, what the table lacks is measured, for `budget` seconds in all, and
    the table is written to `path`. `measured` counts measurements; `jobs` are the keys that were added, each with how
    many dispatches have it and the node of the first. `progress(done, total)` is told of these. After `timeout` seconds
    of waiting for a measurement the device is given up. `log` takes the warnings."""

    table: Table
    measure: bool = False
    budget: float = BUDGET
    path: Path | None = None
    timeout: float | None = None
    timer: Timer = field(default_factory=lambda: on_device)
    clock: Callable[[], float] = time.monotonic
    measured: int = 0
    jobs: list[tuple[Key, int, str]] = field(default_factory=list)
    progress: Callable[[int, int], None] = lambda done, total: None
    log: Log = field(default_factory=Log)

    @property
    def seconds(self) -> float:
        """What is left to measure, 0 where nothing is."""
        return max(0.0, self.budget) if self.measure else 0.0

    def include(self, given: Any, what: str) -> None:
        """Adds a table in its JSON, parsed or as text; one that is damaged or for another adapter is left out with a
        warning. `what` says where it was."""
        try:
            table = loads(given) if isinstance(given, str) else parse(given)
            self.table.add(fitting(table, self.table))
        except PlanError as e:
            then = "it is measured anew" if self.measure else "defaults are taken"
            self.log.warning(f"{what} is ignored: {e.what}; {then}")

    def read(self) -> None:
        """Adds the table at `path`, where there is one. Raises InputError where that is a folder, and where a file that
        is only to be used is not there."""
        if self.path is not None and self.path.is_dir():
            better = self.path / "tuning.json"
            raise InputError(f"the tuning file {self.path} is a folder; name a file, such as {better}")
        if self.path is None or (self.measure and not self.path.exists()):
            return
        try:
            with plain_file(self.path, InputError).open("rb") as file:
                data = file.read(MAX_FILE + 1)
            text = data.decode() if len(data) <= MAX_FILE else ""
        except (OSError, UnicodeDecodeError) as e:
            if not self.measure and isinstance(e, FileNotFoundError):
                raise InputError(f"there is no tuning file {self.path}; make one: webrt tune MODEL -o FILE.json") from e
            text = ""
        self.include(text, f"the tuning file {self.path}")

    def write(self) -> None:
        """Puts the table to `path`. A folder that cannot be written to is a warning."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.path) as file:
                file.write(self.table.dumps().encode())
        except (OSError, WebrtError) as e:
            self.log.warning(f"the tuning cannot be kept in {self.path}: {e}")


def of_options(device: Adapted, options: Mapping[str, Any], log: Log | None = None) -> Tuning | None:
    """What `tuning`, `tuning_file` and `tuning_budget` of the WebGPU provider ask for; None where they ask for nothing.
    Raises InputError for wrong values."""
    measure, file = options.get("tuning", False), options.get("tuning_file")
    if measure not in (True, False, "0", "1"):
        raise InputError(f'tuning is "0" or "1", not {measure!r}')
    if file is not None and not isinstance(file, str | os.PathLike):
        raise InputError(f"tuning_file is a path, not {file!r}")
    budget = seconds(options.get("tuning_budget", BUDGET))
    if measure in (False, "0") and not file:
        return None
    made = Tuning(empty(device), measure in (True, "1"), budget, log=log or Log())
    made.path = cache_path(made.table) if file == USER_CACHE else Path(file) if file else None
    made.read()
    return made


def of_plan(plan: Plan, device: Adapted, tuning: Tuning | None, log: Log) -> Tuning | None:
    """A session's tuning with what its plan carries for the device's adapter."""
    own = empty(device)
    mine = [t for t in plan.tuning if t.get("adapter") == own.adapter]
    if mine and tuning is None:
        tuning = Tuning(own, log=log)
    for table in mine:
        if tuning is not None:
            tuning.include(table, "the tuning in the plan")
    return tuning


def seconds(given: Any) -> float:
    """A budget. Raises InputError for what is no time above 0."""
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"tuning_budget is a number of seconds above 0, not {given!r}")
    return value


def cache_path(table: Table) -> Path:
    """The file of an adapter in the user's cache folder (XDG_CACHE_HOME, else ~/.cache)."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = "-".join(_plain(table.adapter[k]) for k in ("vendor", "device", "backend"))
    return folder / "webrt" / f"tuning-{name}.json"


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in text)[:60]
