"""The same plan cases through player.js in Chromium: both validators have to say the same."""

from __future__ import annotations

import base64
from random import Random

from tests.fuzz import judge
from tests.web.driver import Player

BATCH = 100


def differences(player: Player, seed: int, first: int, last: int) -> list[str]:
    """One line for each case of which only one side takes the file, or where a side fails in its own way."""
    out = []
    for start in range(first, last, BATCH):
        numbers = range(start, min(start + BATCH, last))
        files = [judge.plan_case(seed, n) for n in numbers]
        there = player.call("verdicts", files=[base64.b64encode(f).decode() for f in files])
        for number, file, told in zip(numbers, files, there):
            here = _here(file, number)
            if bool(told) != here.startswith("PlanError") or (told and not told.startswith("PlanError: ")):
                out.append(f"--case plans {seed} {number}: Python {here[:120]!r}, player.js {told[:120]!r}")
    return out


def _here(file: bytes, number: int) -> str:
    try:
        return judge.plan_verdict(file, Random(number))
    except judge.Finding as e:
        return str(e)
