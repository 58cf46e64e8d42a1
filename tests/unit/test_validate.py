"""The rules of a plan, on the table that player.js is tested on too: each bad plan is one edit of a good one."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.plans import TABLE, damaged, edited
from webrt import plan as P
from webrt import planjson, rules, validate_dispatch
from webrt import validate as V
from webrt.errors import PlanError
from webrt.kernel_layout import KernelLayout, kernel_layout
from webrt.target import BASE


def loaded(edits: list[list[Any]]) -> P.Plan:
    return planjson.plan_from_json(edited(edits))


@pytest.mark.parametrize("case", TABLE["bad"], ids=[c["what"] for c in TABLE["bad"]])
def test_bad_plans_are_refused_by_name(case: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as e:
        V.validate(loaded(case["edits"]))
    assert case["message"] in str(e.value)


@pytest.mark.parametrize("case", TABLE["good"], ids=[c["what"] for c in TABLE["good"]])
def test_good_plans_are_accepted(case: dict[str, Any]) -> None:
    V.validate(loaded(case["edits"]))


def test_every_rule_has_a_bad_plan() -> None:
    """Each text of validate.py's rules occurs in what the table's plans raise (texts with placeholders aside)."""
    text = "".join(Path(m.__file__).read_text(encoding="utf-8") for m in (V, validate_dispatch, rules))
    calls = re.findall(r"\bneed\((.*)\)$", text, re.M)
    texts = {quoted[-1] for c in calls if (quoted := re.findall(r'(?<!f)"([^"]*)"', c)) and c.endswith('"')}
    messages = " ".join(_message(c) for c in TABLE["bad"])
    assert len(texts) > 30
    assert not [t for t in texts if t not in messages]


def _message(case: dict[str, Any]) -> str:
    try:
        V.validate(loaded(case["edits"]))
    except PlanError as e:
        return str(e)
    return ""


def test_damaged_plans_are_plan_errors_or_plans() -> None:
    refused = 0
    for seed in range(3000):
        try:
            V.validate(planjson.plan_from_json(damaged(Random(seed))))
        except PlanError:
            refused += 1
    assert 2000 < refused < 3000


def test_a_given_target_replaces_the_plans_own() -> None:
    plan = loaded([])
    with pytest.raises(PlanError, match="binds 2 storage buffers, the target has 1"):
        V.validate(plan, BASE.with_limits(maxStorageBuffersPerShaderStage=1))


def test_values_that_json_cannot_write_are_refused() -> None:
    plan = loaded([])
    V.validate(plan)
    with pytest.raises(PlanError, match="params_size"):
        V.validate(P.Plan(**{**plan.__dict__, "params_size": True}))
    with pytest.raises(PlanError, match="slot 0"):
        V.validate(P.Plan(**{**plan.__dict__, "slots": (P.Slot(True), *plan.slots[1:])}))


def test_layout_is_read_from_the_text() -> None:
    assert kernel_layout(TABLE["base"]["kernels"][0]["wgsl"]) == KernelLayout(2, "rw")
    assert kernel_layout("@compute @workgroup_size(1) fn main() {}") == KernelLayout(0, "")
