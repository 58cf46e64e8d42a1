"""The table of bad plans: each is a few edits of one good plan."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "unit" / "bad_plans.json"
TABLE: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))


def edited(edits: list[list[Any]]) -> str:
    """The base plan's JSON after `edits`: ["set", path, value], ["delete", path], ["fill", path, value, times]."""
    plan = copy.deepcopy(TABLE["base"])
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
