"""What the parts of a plan may be: predicates for webrt/validate.py."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from webrt.dims import LIMIT
from webrt.errors import PlanError
from webrt.plan import Plan

MAX_GROUPS = 65535
MAX_PROTO = 1 << 26


def need(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise PlanError(f"{where}: {what}; compile the model again")


def is_int(x: Any) -> bool:
    return type(x) is int and abs(x) < LIMIT


def is_index(x: Any, table: Sequence[Any]) -> bool:
    return type(x) is int and 0 <= x < len(table)


def is_ref(plan: Plan, x: Any) -> bool:
    return is_int(x) or (isinstance(x, tuple) and len(x) == 1 and is_index(x[0], plan.dims))


def is_multiple(plan: Plan, x: Any, of: int) -> bool:
    return is_ref(plan, x) and (not isinstance(x, int) or (x >= 0 and x % of == 0))


def is_sizes(plan: Plan, x: Any, longest: int) -> bool:
    return isinstance(x, tuple) and len(x) <= longest and all(is_ref(plan, d) for d in x)


def is_count(plan: Plan, x: Any) -> bool:
    return is_ref(plan, x) and (not isinstance(x, int) or 0 <= x <= MAX_GROUPS)


def is_word(plan: Plan, x: Any) -> bool:
    return is_ref(plan, x) and (not isinstance(x, int) or -(1 << 31) <= x < 1 << 32)


def is_base64(x: Any) -> bool:
    try:
        return isinstance(x, str) and len(x) <= MAX_PROTO and base64.b64decode(x, validate=True) is not None
    except (binascii.Error, ValueError):
        return False


def check_place(plan: Plan, place: Any, where: str) -> None:
    pair = isinstance(place, tuple) and len(place) == 2 and place[0] in ("s", "c")
    table: Sequence[Any] = (plan.slots if place[0] == "s" else plan.constants) if pair else ()
    need(pair and is_index(place[1], table), where, "a place is out of range")
