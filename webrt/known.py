"""Inputs whose elements were fixed when a plan was compiled: `plan.meta["known"]`, and what refuses another feed; and
arrays of what Python writes without numpy.

An entry is {"text": the elements as JSON, "" where they are many, "bits": what tells them from others}.
web/player/known.js is the twin of `refuse_other`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from webrt import checksum
from webrt.dtypes import BY_NAME
from webrt.errors import InputError

MOST_TOLD = 8
"""Elements of a value that a message shows."""
MOST_BYTES = 4096
"""Of a value that is kept whole; of a longer one its CRC-32 is kept."""
_EXACT = frozenset({"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))})
"""Types whose elements JavaScript and Python write alike."""
PYTHON = (bool, int, float, str, list)
"""Values that numpy would make an array of."""


def of_python(name: str, value: Any, expected: Any, dtype: str) -> Any:
    """The array, of numpy's type `expected`, of a number, a text or lists of them; `dtype` is webrt's name of it.

    Raises InputError, naming the input. Numbers of a wider kind (floats for an integer input) are refused, never cut.
    """
    import numpy as np

    kind = "list" if isinstance(value, list) else type(value).__name__
    try:
        plain = np.asarray(value)
        texts = plain.dtype.kind in "USO" and all(isinstance(x, (str, bytes)) for x in plain.reshape(-1).tolist())
        numbers = expected.kind in "fV" or np.can_cast(plain.dtype, expected, "same_kind")
        fits = texts if expected.kind == "O" else not texts and (numbers or plain.dtype.kind + expected.kind == "iu")
        if fits or plain.size == 0:
            with np.errstate(over="raise"):
                return np.asarray(value, dtype=expected)
    except (ValueError, TypeError, ArithmeticError) as e:
        raise InputError(f"input {name!r}: the {kind} does not convert to {dtype}: {e}") from e
    of = f" of {plain.dtype}" if kind == "list" else ""
    raise InputError(f"input {name!r} is a {kind}{of}; {dtype} is expected")


def described(array: Any, dtype: str) -> dict[str, str]:
    """The entry of an array of the type `dtype`."""
    return {"text": _text(array), "bits": _bits(array, dtype)}


def names(meta: Mapping[str, Any]) -> frozenset[str]:
    """The inputs that a plan of this `meta` has fixed: a run need not be fed them."""
    return frozenset(meta.get("known", ()))


def refuse_other(meta: Mapping[str, Any], name: str, dtype: str, array: Any) -> None:
    """Raises InputError where the elements of a feed are not those that the input was fixed to."""
    fixed = meta.get("known", {}).get(name)
    if fixed is None or _bits(array, dtype) == fixed["bits"]:
        return
    shown = _text(array) if dtype in _EXACT else ""
    value = fixed["text"]
    raise InputError(
        f"{name!r} was fixed{f' to {value}' if value else ''} when the plan was compiled; {shown or 'another value'} "
        f"was given: compile it again without --known {name}, or feed {value or 'the same'}"
    )


def _text(array: Any) -> str:
    short = array.ndim < 2 and array.size <= MOST_TOLD
    return json.dumps(array.tolist()) if short and array.dtype.kind in "biuf" else ""


def _bits(array: Any, dtype: str) -> str:
    if dtype == "string":
        texts = [x.decode() if isinstance(x, bytes) else str(x) for x in array.reshape(-1).tolist()]
        data = json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    else:
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        if dtype in BY_NAME and BY_NAME[dtype].width < 8 and dtype != "bool":
            data = bytes(b & ((1 << BY_NAME[dtype].width) - 1) for b in data)
    return data.hex() if len(data) <= MOST_BYTES else f"crc32:{checksum.crc32(data):08x}"
