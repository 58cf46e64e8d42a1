"""A plan from its JSON, of this version or an older one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from webrt.dims import DimRef
from webrt.errors import PlanError
from webrt.plan import (
    VERSION,
    Constant,
    Copy,
    Dispatch,
    HostStep,
    Kernel,
    PlacedNode,
    Plan,
    Read,
    Slot,
    Step,
    ValueInfo,
    Work,
)
from webrt.subplans import Branch, Loop, SubPlan


def plan_from_json(text: str) -> Plan:
    """Raises PlanError for what is no plan or of a newer version. Ranges and references are validate.py's."""
    return versioned(text)[1]


def versioned(text: str) -> tuple[int, Plan]:
    try:
        d = json.loads(text, parse_float=_number, parse_int=integer, parse_constant=no_number)
        version = d.pop("version")
        if type(version) is not int or version < 1:
            raise TypeError(f"version {version!r}")
        if version > VERSION:
            raise PlanError(
                f"the plan is of version {version}, made by a newer webrt; this one reads versions 1 to {VERSION}: "
                "update webrt, or compile the model again"
            )
        for key in ("inputs", "outputs", "kernels", "slots", "constants", "steps", "checks", "placement"):
            _list(d[key], key)
        return version, Plan(
            **{
                **d,
                "inputs": tuple(_value(v) for v in d["inputs"]),
                "outputs": tuple(_value(v) for v in d["outputs"]),
                "values": {k: _value(v) for k, v in d["values"].items()},
                "kernels": tuple(Kernel(**k) for k in d["kernels"]),
                "slots": _slots(d["slots"]),
                "constants": tuple(Constant(**_frozen(c)) for c in d["constants"]),
                "steps": _steps(d["steps"]),
                "checks": tuple((_ref(c), m) for c, m in map(tuple, d["checks"])),
                "placement": tuple(PlacedNode(**p) for p in d["placement"]),
                "tuning": tuple(_list(d.get("tuning", []), "tuning")),
                "work": tuple(Work(**_frozen(w)) for w in _list(d.get("work", []), "work")),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise PlanError(f"the plan is damaged ({type(e).__name__}: {e}); compile the model again") from e


def _list(x: Any, name: str) -> list[Any]:
    if not isinstance(x, list):
        raise TypeError(f"{name} is no list")
    return x


_KINDS: dict[str, Callable[..., Step]] = {
    "dispatch": Dispatch, "copy": Copy, "host": HostStep, "read": Read, "branch": Branch, "loop": Loop,
}  # fmt: skip


def _steps(given: Any) -> tuple[Step, ...]:
    return tuple(_step(s) for s in _list(given, "steps"))


def _step(given: Any) -> Step:
    made = _KINDS[given["kind"]]
    if made not in (Branch, Loop):
        return made(**_frozen(given))
    bodies = tuple(_sub(b) for b in _list(given["bodies"], "bodies"))
    return made(**{**_frozen({k: v for k, v in given.items() if k != "bodies"}), "bodies": bodies})


def _sub(d: Any) -> SubPlan:
    return SubPlan(
        **{
            **d,
            "inputs": tuple(_value(v) for v in _list(d["inputs"], "inputs")),
            "outputs": tuple(_value(v) for v in _list(d["outputs"], "outputs")),
            "values": {k: _value(v) for k, v in d["values"].items()},
            "slots": _slots(d["slots"]),
            "steps": _steps(d["steps"]),
            "checks": tuple((_ref(c), m) for c, m in map(tuple, _list(d.get("checks", []), "checks"))),
        }
    )


def _slots(given: Any) -> tuple[Slot, ...]:
    return tuple(
        Slot(**{**s, "size": _ref(s["size"]), "label": s["label"], "after": _ref(s.get("after", 0))})
        for s in _list(given, "slots")
    )


def _ref(x: Any) -> DimRef:
    if isinstance(x, list):
        (k,) = x
        return (_whole(k),)
    return _whole(x)


def _number(text: str) -> int | float:
    """As JavaScript reads it: 16.0 is 16."""
    value = float(text)
    return int(value) if value.is_integer() else value


def integer(text: str) -> int | float:
    """As JavaScript reads it: one of very many digits is infinite."""
    return int(text) if len(text) < 300 else _number(text)


def no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _whole(x: Any) -> int:
    if type(x) is not int:
        raise TypeError(f"{x!r} is no size")
    return x


def _frozen(x: Any) -> Any:
    """Lists become tuples, all the way down, except inside a mapping's values."""
    if isinstance(x, dict):
        return {k: _frozen(v) for k, v in x.items()}
    return tuple(_frozen(v) for v in x) if isinstance(x, list) else x


def _value(d: Mapping[str, Any]) -> ValueInfo:
    return ValueInfo(**_frozen(dict(d)))
