"""The plan: plain data between the compile half and the run half, and its `.webrt` file.

A `.webrt` file is in the safetensors format (https://github.com/huggingface/safetensors, "Format"): an 8-byte
little-endian header length, a JSON header, the data. The plan is the string `__metadata__["webrt"]`; its constants
are the tensors, in order of first use, each at a multiple of 16 bytes (tensors named `pad.N` fill the gaps). The header
has a checksum, and the last tensor holds one for each constant with the gap after it (webrt/checksum.py).

The version of the format is in the plan. Files of every version up to VERSION are read; of a newer one none is. Version
1 had no checksums.

A *place* is where a tensor's bytes are: `["s", slot]`, `["c", constant]`, or None for a value on the host.
A size is a `DimRef`: an int, or `[k]`, the result of instruction k of `dims`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from webrt import checksum, dtypes
from webrt.bounds import told
from webrt.dims import DimRef
from webrt.errors import PlanError
from webrt.resources import plain_file
from webrt.subplans import Branch, Loop, SubPlan, walk

VERSION = 2
ALIGN = 16
MAX_HEADER = 100_000_000

TEXTURE_WIDTH = 1024
"""Texels of a row of a texture operand: texel t, elements 4t … 4t+3, is at (t % 1024, t // 1024)."""

DRAWN = "in:[0]"
"""The variable that each run binds to a random word of 32 bits: the seed of operators that have none."""

Place: TypeAlias = tuple[str, int]
Bytes: TypeAlias = bytes | bytearray | memoryview

# safetensors has no name for some types; those constants are written as their bits.
_SAFETENSORS = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "bool": "BOOL", "int8": "I8",
    "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """WGSL text without `enable` lines; `requires` is what it needs beyond the target (target.REQUIREMENTS).

    Its declarations say how it reads each binding: as a buffer or as a texture (validate.kernel_layout)."""

    name: str
    wgsl: str
    hash: str
    requires: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slot:
    """A device buffer that several tensors use one after another; `size` in bytes, a multiple of 16, at least 16.

    `after`: where an input of the plan is the first of them, the bytes that the others need. The first step that writes
    the slot ends that input."""

    size: DimRef
    label: str = ""
    after: DimRef = 0


@dataclass(frozen=True)
class Constant:
    """A tensor that the plan carries. `nbytes` is without padding; data starts at `offset` of the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int


@dataclass(frozen=True)
class ValueInfo:
    """A value that crosses the border: a graph input or output, or an operand of a host step.

    `shape` is None where the rank is not known; `place` is None for a value that lives on the host only.
    A size that is a plain variable with no value yet is bound to the array's size; any other must equal it.
    `elements` > 0: the value's integers are the variables `in:NAME[0]` … `in:NAME[elements-1]`.
    `contents`: the value's elements are these sizes (nothing computes it). `constant`: it is that constant.
    An executor looks for a value among what was fed or made on the host first, then at `contents`, `constant`, `place`.
    """

    name: str
    dtype: str
    shape: tuple[DimRef, ...] | None
    place: Place | None = None
    elements: int = 0
    constant: int | None = None
    contents: tuple[DimRef, ...] | None = None


@dataclass(frozen=True)
class Dispatch:
    """One kernel launch. `alternatives` = ((kernel, x, y, z), …) in order of preference, the executor takes the first
    the device meets; `bindings` = ((place, "r" | "w", offset, size), …) in bytes at @binding(1) …, where a size of 0
    is the rest of the tensor; `params` are the u32 words at @binding(0), at `params_offset` of the plan's parameter
    block (two's complement for negatives).

    `textures` = ((binding, texels), …) for the operands that alternatives may read as textures of rgba32float or
    rgba32uint: so many times 16 bytes from the binding's offset on, in rows of TEXTURE_WIDTH. `when`: for each
    alternative a size that is 0 where it is not to be taken (all may be, where there is none)."""

    alternatives: tuple[tuple[int, DimRef, DimRef, DimRef], ...]
    bindings: tuple[tuple[Place, str, DimRef, int], ...]
    params: tuple[DimRef, ...]
    params_offset: int
    node: int = -1
    kind: str = "dispatch"
    textures: tuple[tuple[int, DimRef], ...] = ()
    when: tuple[DimRef, ...] = ()

    def applies(self, alternative: int) -> DimRef:
        """The size that is 0 where the alternative is not to be taken."""
        return self.when[alternative] if self.when else 1


@dataclass(frozen=True)
class Copy:
    """copyBufferToBuffer: offsets and size in bytes, multiples of 4, between different buffers."""

    source: Place
    source_offset: DimRef
    target: Place
    target_offset: DimRef
    size: DimRef
    node: int = -1
    kind: str = "copy"


@dataclass(frozen=True)
class HostStep:
    """A node that the host provider runs: `proto` is its NodeProto in base64, `inputs` and `outputs` name `values`.

    Inputs that are "" are absent; `outer` are values that the node's subgraphs capture."""

    proto: str
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    outer: tuple[str, ...] = ()
    node: int = -1
    kind: str = "host"


@dataclass(frozen=True)
class Read:
    """Sizes that the device computes: the i32 at the start of each place becomes a variable of the size program.
    `reads` = ((place, variable), …). What was recorded before is submitted; later steps may depend on the variables."""

    reads: tuple[tuple[Place, str], ...]
    node: int = -1
    kind: str = "read"


Step: TypeAlias = Dispatch | Copy | HostStep | Read | Branch | Loop


@dataclass(frozen=True)
class PlacedNode:
    """A line of the placement report: `provider` "webgpu" or "cpu"; `how` "kernel", "copy", "alias", "folded",
    "branch", "loop" or "host"; `bytes` that cross between device and host because of it (None when they depend on
    sizes). Nodes within a branch or a loop have lines of their own."""

    node: str
    op: str
    provider: str
    how: str
    reason: str = ""
    bytes: int | None = 0


@dataclass(frozen=True)
class Work:
    """What a step works on, for profiles: `tensors` = ((type, shape), …) in the order of a dispatch's bindings or of a
    copy's ends; `ops` are the operators that it computes; `flop` its node's floating-point operations as a sum of
    products, at one step of the node, () where nobody can tell."""

    tensors: tuple[tuple[str, tuple[DimRef, ...]], ...]
    ops: tuple[str, ...]
    flop: tuple[tuple[DimRef, ...], ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs. `values` are host operands by name; `checks` = ((size, message), …): a size that
    is 0 at a run refuses the feeds with that message; `meta` is the model's own metadata, opsets and producer; `work`
    has an entry for each step, or none; `tuning` are tables of runtime/tuning.py, each for an adapter."""

    dims: list[list[Any]]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    values: Mapping[str, ValueInfo]
    kernels: tuple[Kernel, ...]
    slots: tuple[Slot, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    params_size: int = 0
    checks: tuple[tuple[DimRef, str], ...] = ()
    placement: tuple[PlacedNode, ...] = ()
    work: tuple[Work, ...] = ()
    target: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    tuning: tuple[Mapping[str, Any], ...] = ()
    data: Callable[[int], Bytes] | None = field(default=None, compare=False, repr=False)

    def constant_bytes(self, index: int) -> Bytes:
        """The bytes of constant `index`, without padding."""
        if self.data is None:
            raise PlanError("the plan carries no constants; load it from its file")
        return self.data(index)

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        """Those within other steps too."""
        return tuple(s for s in walk(self.steps) if isinstance(s, HostStep))

    def within(self, sub: SubPlan) -> Plan:
        """A sub-plan as a plan of its own."""
        shared = {"kernels": self.kernels, "constants": self.constants, "placement": self.placement}
        return Plan(**sub.__dict__, **shared, target=self.target, data=self.data)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """The plan without its constants' bytes, as json can write it."""
        out = {k: v for k, v in self.__dict__.items() if k != "data"}
        out["values"] = {k: asdict(v) for k, v in self.values.items()}
        for key in ("inputs", "outputs", "kernels", "slots", "constants", "steps", "placement", "work"):
            out[key] = [asdict(x) for x in out[key]]
        if not self.tuning:
            del out["tuning"]
        return {"version": VERSION, **out}


def plan_from_json(text: str) -> Plan:
    """Raises PlanError for what is no plan or of a newer version. Ranges and references are validate.py's."""
    return _versioned(text)[1]


def _versioned(text: str) -> tuple[int, Plan]:
    try:
        d = json.loads(text, parse_float=_number, parse_int=_integer, parse_constant=_no_number)
        version = d.pop("version")
        if type(version) is not int or version < 1:
            raise TypeError(f"version {version!r}")
        if version > VERSION:
            raise PlanError(
                f"the plan is of version {version}, made by a newer webrt; this one reads versions 1 to {VERSION}: "
                "update webrt, or compile the model again"
            )
        for key in ("inputs", "outputs", "kernels", "slots", "constants", "steps", "checks", "placement"):
            _list(d[key], key)
        return version, Plan(
            **{
                **d,
                "inputs": tuple(_value(v) for v in d["inputs"]),
                "outputs": tuple(_value(v) for v in d["outputs"]),
                "values": {k: _value(v) for k, v in d["values"].items()},
                "kernels": tuple(Kernel(**k) for k in d["kernels"]),
                "slots": _slots(d["slots"]),
                "constants": tuple(Constant(**_frozen(c)) for c in d["constants"]),
                "steps": _steps(d["steps"]),
                "checks": tuple((_ref(c), m) for c, m in map(tuple, d["checks"])),
                "placement": tuple(PlacedNode(**p) for p in d["placement"]),
                "tuning": tuple(_list(d.get("tuning", []), "tuning")),
                "work": tuple(Work(**_frozen(w)) for w in _list(d.get("work", []), "work")),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise PlanError(f"the plan is damaged ({type(e).__name__}: {e}); compile the model again") from e


def save(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Writes `plan` as a `.webrt` file: to a temporary name beside `path`, then renamed."""
    with atomic_file(Path(path)) as out:
        for chunk in dump_chunks(plan):
            out.write(chunk)


def dump(plan: Plan) -> bytes:
    """The `.webrt` file as bytes."""
    return b"".join(bytes(c) for c in dump_chunks(plan))


def dump_chunks(plan: Plan) -> Iterator[Bytes]:
    """The file in order, piece by piece."""
    text = json.dumps(plan.to_json(), separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {"format": "webrt", "crc32": checksum.BLANK, "webrt": text}}
    end = 0
    for c in plan.constants:
        if c.offset > end:
            header[f"pad.{end}"] = {"dtype": "U8", "shape": [c.offset - end], "data_offsets": [end, c.offset]}
        end = c.offset + c.nbytes
        name = _SAFETENSORS.get(c.dtype)
        shape = list(c.shape) if name else [c.nbytes]
        header[f"{len(header)}.{c.name}"] = {"dtype": name or "U8", "shape": shape, "data_offsets": [c.offset, end]}
    bounds = _bounds(plan.constants)
    if bounds[-1] > end:
        header[f"pad.{end}"] = {"dtype": "U8", "shape": [bounds[-1] - end], "data_offsets": [end, bounds[-1]]}
    count = len(plan.constants)
    offsets = [bounds[-1], bounds[-1] + 4 * count]
    header[checksum.TABLE] = {"dtype": "U32", "shape": [count], "data_offsets": offsets}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-(len(head) + 8) % ALIGN)
    yield checksum.seal(struct.pack("<Q", len(head)) + head)
    sums = []
    for i, c in enumerate(plan.constants):
        block = (bytes(c.offset - bounds[i]), plan.constant_bytes(i), bytes(bounds[i + 1] - c.offset - c.nbytes))
        sums.append(functools.reduce(lambda before, piece: checksum.crc32(piece, before), block, 0))
        yield from block
    yield checksum.pack(sums)


@told(PlanError, "reading the plan")
def load(source: str | os.PathLike[str] | Bytes) -> Plan:
    """Reads a `.webrt` file (a path, or its bytes). A path is opened again for each constant that is asked for.

    Raises PlanError when it is cut short, damaged, or of a newer version. Each constant is checked when it is read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source)
        return _load(view[: 8 + _header_length(bytes(view[:8]))], len(view), lambda start, n: view[start : start + n])
    path = plain_file(source, PlanError)
    try:
        with path.open("rb") as f:
            first = f.read(8)
            head = first + f.read(_header_length(first))
        return _load(memoryview(head), path.stat().st_size, lambda start, n: _read(path, start, n))
    except OSError as e:
        raise PlanError(f"{path}: {e.strerror or e}") from e


def layout_constants(sizes: Sequence[int]) -> list[int]:
    """The offset of each constant in the data section: multiples of 16, in the given order."""
    offsets, end = [], 0
    for n in sizes:
        offsets.append(end)
        end += -(-n // ALIGN) * ALIGN
    return offsets


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Any]:
    """A binary file that appears under `path` only when the block ends well; nothing is left behind otherwise."""
    if path.is_dir():
        raise PlanError(f"cannot write {path}: it is a folder")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise PlanError(f"cannot write {path}: {e.strerror or e}") from e
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _header_length(first: bytes) -> int:
    if len(first) < 8:
        raise PlanError("the .webrt file is cut short: it has no header")
    (n,) = struct.unpack("<Q", first)
    if n > MAX_HEADER:
        raise PlanError("not a .webrt file: its header is longer than allowed")
    return int(n)


def _load(head: memoryview, size: int, read: Callable[[int, int], Bytes]) -> Plan:
    start = 8 + _header_length(bytes(head[:8]))
    if len(head) < start:
        raise PlanError("the .webrt file is cut short: its header ends early")
    sealed = checksum.is_sealed(head)
    try:
        header = json.loads(bytes(head[8:]).decode(), parse_int=_integer, parse_constant=_no_number)
        text = header["__metadata__"]["webrt"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise PlanError("not a .webrt file: it has no webrt plan in its header") from e
    version, plan = _versioned(text)
    if not sealed and version > 1:
        raise PlanError("the .webrt file is damaged: its header has no checksum; copy or compile it again")
    for c in plan.constants:
        if not (type(c.offset) is int and type(c.nbytes) is int and c.offset >= 0 and c.nbytes >= 0):
            raise PlanError(f"constant {c.name!r} has no valid place in the file")
        if start + c.offset + c.nbytes > size:
            raise PlanError(
                f"the .webrt file is cut short: constant {c.name!r} ends at {start + c.offset + c.nbytes}, "
                f"the file at {size}"
            )
        known = isinstance(c.dtype, str) and c.dtype in dtypes.BY_NAME
        sizes = isinstance(c.shape, tuple) and all(type(d) is int and d >= 0 for d in c.shape)
        if not (known and sizes) or dtypes.BY_NAME[c.dtype].nbytes(math.prod(c.shape)) != c.nbytes:
            raise PlanError(f"constant {c.name!r} has {c.nbytes} bytes, its type and shape need another number")
    place = [(start + c.offset, c.nbytes) for c in plan.constants]
    data = _checked(plan, start, size, read) if version > 1 else lambda i: read(*place[i])
    return Plan(**{**plan.__dict__, "data": data})


def _checked(plan: Plan, start: int, size: int, read: Callable[[int, int], Bytes]) -> Callable[[int], Bytes]:
    """Gives constants from data at `start` of a file of `size` bytes; raises PlanError for one of another checksum."""
    bounds = _bounds(plan.constants)
    if any(a > b for a, b in itertools.pairwise(bounds)):
        raise PlanError("the .webrt file is damaged: its constants are out of order; copy or compile it again")
    end = start + bounds[-1] + 4 * len(plan.constants)
    if end != size:
        raise PlanError(f"the .webrt file is {'cut short' if end > size else 'damaged'}: it ends at {size}, not {end}")
    sums = checksum.unpack(read(start + bounds[-1], 4 * len(plan.constants)))

    def data(index: int) -> Bytes:
        constant, at = plan.constants[index], bounds[index]
        block = memoryview(read(start + at, bounds[index + 1] - at))
        if checksum.crc32(block) != sums[index]:
            raise PlanError(
                f"the .webrt file is damaged, or was changed since it was opened: constant {constant.name!r} "
                "has another checksum; load it anew"
            )
        return block[constant.offset - at :][: constant.nbytes]

    return data


def _bounds(constants: Sequence[Constant]) -> list[int]:
    """Where the block of each constant begins in the data section, and where the last one ends."""
    end = max((c.offset + c.nbytes for c in constants), default=0)
    return [0, *(c.offset for c in constants[1:]), -(-end // ALIGN) * ALIGN] if constants else [0]


def _read(path: Path, start: int, n: int) -> bytes:
    try:
        with path.open("rb") as f:
            f.seek(start)
            out = f.read(n)
    except OSError as e:
        raise PlanError(f"{path} is gone since it was opened, and is needed again: {e.strerror or e}") from e
    if len(out) != n:
        raise PlanError(f"{path} was cut short after it was opened")
    return out


def _list(x: Any, name: str) -> list[Any]:
    if not isinstance(x, list):
        raise TypeError(f"{name} is no list")
    return x


_KINDS: dict[str, Callable[..., Step]] = {
    "dispatch": Dispatch, "copy": Copy, "host": HostStep, "read": Read, "branch": Branch, "loop": Loop,
}  # fmt: skip


def _steps(given: Any) -> tuple[Step, ...]:
    return tuple(_step(s) for s in _list(given, "steps"))


def _step(given: Any) -> Step:
    made = _KINDS[given["kind"]]
    if made not in (Branch, Loop):
        return made(**_frozen(given))
    bodies = tuple(_sub(b) for b in _list(given["bodies"], "bodies"))
    return made(**{**_frozen({k: v for k, v in given.items() if k != "bodies"}), "bodies": bodies})


def _sub(d: Any) -> SubPlan:
    return SubPlan(
        **{
            **d,
            "inputs": tuple(_value(v) for v in _list(d["inputs"], "inputs")),
            "outputs": tuple(_value(v) for v in _list(d["outputs"], "outputs")),
            "values": {k: _value(v) for k, v in d["values"].items()},
            "slots": _slots(d["slots"]),
            "steps": _steps(d["steps"]),
            "checks": tuple((_ref(c), m) for c, m in map(tuple, _list(d.get("checks", []), "checks"))),
        }
    )


def _slots(given: Any) -> tuple[Slot, ...]:
    return tuple(
        Slot(**{**s, "size": _ref(s["size"]), "label": s["label"], "after": _ref(s.get("after", 0))})
        for s in _list(given, "slots")
    )


def _ref(x: Any) -> DimRef:
    if isinstance(x, list):
        (k,) = x
        return (_whole(k),)
    return _whole(x)


def _number(text: str) -> int | float:
    """As JavaScript reads it: 16.0 is 16."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _integer(text: str) -> int | float:
    """As JavaScript reads it: one of very many digits is infinite."""
    return int(text) if len(text) < 300 else _number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _whole(x: Any) -> int:
    if type(x) is not int:
        raise TypeError(f"{x!r} is no size")
    return x


def _frozen(x: Any) -> Any:
    """Lists become tuples, all the way down, except inside a mapping's values."""
    if isinstance(x, dict):
        return {k: _frozen(v) for k, v in x.items()}
    return tuple(_frozen(v) for v in x) if isinstance(x, list) else x


def _value(d: Mapping[str, Any]) -> ValueInfo:
    return ValueInfo(**_frozen(dict(d)))
