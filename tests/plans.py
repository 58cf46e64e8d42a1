"""The table of bad plans: each is a few edits of one good plan."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

_FILE = Path(__file__).parent / "unit" / "bad_plans.json"
TABLE: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
TUNINGS: dict[str, Any] = json.loads((_FILE.parent / "bad_tunings.json").read_text(encoding="utf-8"))
"""Tables of measurements, as TABLE has plans."""


def edited(edits: list[list[Any]], base: Any = TABLE["base"]) -> str:
    """The JSON of `base` after `edits`: ["set", path, value], ["delete", path], ["fill", path, value, times]."""
    plan = copy.deepcopy(base)
    for kind, path, *values in edits:
        at = plan
        for key in path[:-1]:
            at = at[int(key)] if isinstance(at, list) else at[key]
        last = int(path[-1]) if isinstance(at, list) else path[-1]
        if kind == "delete":
            del at[last]
        else:
            at[last] = values[0] if kind == "set" else values[0] * values[1]
    return json.dumps(plan)


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 16, 2**31, 2**53, 0.5, "", "s", "c", "w", "x", [], [0], [7], [99], [[0]], [[1], 2],
    ["s", 0], ["s", 9], ["c", 0], [["s", 0], "r", 0, 0], ["add", 1, 2], {}, {"a": 1}, {"features": ["f16"]},
)  # fmt: skip
"""What may stand anywhere in a damaged plan."""


def damaged(random: Random) -> str:
    """The base plan with one or two of its parts replaced by something else, deleted, or doubled."""
    plan = copy.deepcopy(TABLE["base"])
    for _ in range(random.randint(1, 2)):
        at = plan
        while True:
            key = random.choice(list(at) if isinstance(at, dict) else range(len(at)))
            inner = at[key]
            if not isinstance(inner, (dict, list)) or not inner or random.random() < 0.2:
                break
            at = inner
        if random.random() < 0.15:
            del at[key]
        elif isinstance(at, list) and random.random() < 0.1:
            at.append(copy.deepcopy(inner))
        else:
            at[key] = copy.deepcopy(random.choice(ODD))
        if not plan:
            break
    return json.dumps(plan)
