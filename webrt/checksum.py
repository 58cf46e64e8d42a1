"""Checksums of a `.webrt` file: a CRC-32 (zlib's) in the header, and one for each block of data at the file's end.

The header's text starts with PREFIX and eight hexadecimal digits: the CRC-32 of the file's first eight bytes and the
header with these digits as zeros. They find damage, not malice. web/player/checksum.js is the twin.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from webrt.errors import PlanError

PREFIX = b'{"__metadata__":{"format":"webrt","crc32":"'
BLANK = "00000000"
TABLE = "webrt.crc32"
"""The tensor that holds the blocks' checksums, the last one of the file."""

_AT = 8 + len(PREFIX)


def seal(head: bytes) -> bytes:
    """The file's length field and header with the checksum in place of BLANK."""
    return head[:_AT] + _digits(head) + head[_AT + len(BLANK) :]


def is_sealed(head: memoryview) -> bool:
    """Whether a length field and header carry a checksum. Raises PlanError where it is not theirs."""
    if head[8:_AT] != PREFIX:
        return False
    if head[_AT : _AT + len(BLANK)] != _digits(head):
        raise PlanError("the .webrt file is damaged: its header has another checksum; copy or compile it again")
    return True


def pack(sums: Sequence[int]) -> bytes:
    """The table of the blocks' checksums."""
    return struct.pack(f"<{len(sums)}I", *sums)


def unpack(table: bytes | bytearray | memoryview) -> tuple[int, ...]:
    """The checksums in a table of them."""
    return struct.unpack(f"<{len(table) // 4}I", table)


def crc32(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """The CRC-32 of bytes that follow others with the CRC-32 `before`."""
    return zlib.crc32(data, before)


def _digits(head: bytes | memoryview) -> bytes:
    view = memoryview(head)
    rest = zlib.crc32(BLANK.encode(), zlib.crc32(view[:_AT]))
    return f"{zlib.crc32(view[_AT + len(BLANK) :], rest):08x}".encode()
