"""What a case came to: a verdict in a few words, or a Finding."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import models, plans, seeds
from webrt import planfile
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import PlanError, WebrtError
from webrt.validate import validate


class Finding(Exception):
    """A case that broke a promise: `what` in a line, `where` it came from."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} | {where}")
        self.what, self.where = what, where


@lru_cache(maxsize=4)
def model_seeds(folder: str) -> tuple[bytes, ...]:
    """The seeds of model cases; with a folder, its models instead."""
    return seeds.folder(Path(folder)) if folder else seeds.models()


def model_case(seed: int, number: int, folder: str = "") -> tuple[bytes, dict[str, Any]]:
    """The bytes and options of a model case."""
    return models.make(Random(f"model {seed} {number}"), model_seeds(folder))


def plan_case(seed: int, number: int) -> bytes:
    """The bytes of a plan case."""
    return plans.make(Random(f"plan {seed} {number}"))


def compile_verdict(data: bytes, options: Mapping[str, Any]) -> str:
    """ "plan", or the class and text of the WebrtError. Raises Finding for any other end, and for an invalid plan."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = planfile.dump(compile_model(data, CompileOptions(**options)))
    except WebrtError as e:
        return f"{type(e).__name__}: {e}"
    except Exception as e:
        raise found(e) from e
    try:
        validate(planfile.load(made))
    except PlanError as e:
        raise Finding(f"an invalid plan was made: {e}", "validate") from e
    return "plan"


def plan_verdict(data: bytes, random: Random) -> str:
    """ "plan", or "PlanError: text"; a plan's sizes are evaluated too. Raises Finding for any other end."""
    try:
        plan = planfile.load(data)
        validate(plan)
    except PlanError as e:
        return f"PlanError: {e}"
    except Exception as e:
        raise found(e) from e
    try:
        plans.try_sizes(plan, random)
    except WebrtError:
        return "plan"
    except Exception as e:
        raise found(e) from e
    return "plan"


def found(error: Exception) -> Finding:
    """The finding of an exception: its type and text, and webrt's lines in its traceback, innermost first."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/webrt/" in f.filename or "onnx" in f.filename]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames[-4:]))
    return Finding(f"{type(error).__name__}: {str(error)[:200]}", where)
