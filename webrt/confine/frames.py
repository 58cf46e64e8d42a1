"""Messages on a pipe: an 8-byte tag, the length as 8 bytes (little-endian), the payload."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

_HEAD = struct.Struct("<8sQ")
HEAD = _HEAD.size
_PIECE = 1 << 20


class FrameError(Exception):
    """The other side broke off, or sent something else than messages."""


class TooLong(FrameError):
    """A message is longer than there is room for."""


def send(descriptor: int, tag: str, pieces: Iterable[bytes | bytearray | memoryview] = ()) -> None:
    """Writes one message whose payload is all pieces in order. Raises OSError where nobody reads any more."""
    views = [memoryview(p).cast("B") for p in pieces]
    _write(descriptor, memoryview(_HEAD.pack(tag.encode(), sum(len(v) for v in views))))
    for view in views:
        _write(descriptor, view)


def receive(descriptor: int, room: int) -> tuple[str, bytearray]:
    """The next message: its tag and its payload of at most `room` bytes. Raises FrameError.

    Memory grows with the bytes that arrive, not with the length that is announced.
    """
    tag, length = _HEAD.unpack(_read(descriptor, _HEAD.size))
    if length > room:
        raise TooLong(f"{length} more bytes, {room} are left")
    return tag.rstrip(b"\0").decode("ascii", "replace"), _read(descriptor, length)


def _write(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view[:_PIECE]) :]


def _read(descriptor: int, count: int) -> bytearray:
    out = bytearray()
    while len(out) < count:
        piece = os.read(descriptor, min(count - len(out), _PIECE))
        if not piece:
            raise FrameError("the pipe was closed")
        out += piece
    return out
