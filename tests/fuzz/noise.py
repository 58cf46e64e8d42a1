"""Damage to bytes that knows nothing of their format."""

from __future__ import annotations

from random import Random


def noisy(random: Random, data: bytes) -> bytes:
    """The bytes with one to four of these: a bit flipped, a byte set, a part dropped, doubled, moved, or cut off."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        if not out:
            return random.randbytes(random.randrange(64))
        at, length = random.randrange(len(out)), random.choice((1, 1, 2, 8, 64))
        what = random.randrange(6)
        if what == 0:
            out[at] ^= 1 << random.randrange(8)
        elif what == 1:
            out[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 2:
            del out[at : at + length]
        elif what == 3:
            out[at:at] = out[at : at + length]
        elif what == 4:
            out[at:at] = random.randbytes(length)
        elif random.random() < 0.3:
            del out[at:]
    return bytes(out)
