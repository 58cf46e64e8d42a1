"""The `.webrt` file of a plan, read and written.

It is in the safetensors format (https://github.com/huggingface/safetensors, "Format"): an 8-byte
little-endian header length, a JSON header, the data. The plan is the string `__metadata__["webrt"]`; its constants
are the tensors, in order of first use, each at a multiple of 16 bytes (tensors named `pad.N` fill the gaps). The header
has a checksum, and the last tensor holds one for each constant with the gap after it (webrt/checksum.py).

The version of the format is in the plan. Files of every version up to VERSION are read; of a newer one none is. Version
1 had no checksums.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from webrt import checksum, dtypes, planjson
from webrt.bounds import told
from webrt.errors import PlanError
from webrt.files import atomic_file, plain_file
from webrt.plan import ALIGN, Bytes, Constant, Plan

MAX_HEADER = 100_000_000

# safetensors has no name for some types; those constants are written as their bits.
_SAFETENSORS = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "bool": "BOOL", "int8": "I8",
    "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
}  # fmt: skip


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
        header = json.loads(bytes(head[8:]).decode(), parse_int=planjson.integer, parse_constant=planjson.no_number)
        text = header["__metadata__"]["webrt"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise PlanError("not a .webrt file: it has no webrt plan in its header") from e
    version, plan = planjson.versioned(text)
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
