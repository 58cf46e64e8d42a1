"""One row of the table: a model, the pattern that it is about, and the operators that must be left of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tests.passes.harness import parse

Array = np.ndarray[Any, Any]

FIRES = "fires"
REASONS = (
    "second consumer", "graph output", "wrong axis", "wrong constant", "other type", "other operator", "not constant",
    "other shape", "other order", "too large",
)  # fmt: skip
"""Why a pattern must not be found."""


@dataclass(frozen=True)
class Case:
    """`graph`: "inputs => outputs { nodes }", whose names that nothing defines are constants of `pool`. `left`:
    operators, in order, that remain at level "basic" (of a basic pass), or that have a kernel at level "all". `why`:
    FIRES, or one of REASONS. `odd`: also with NaN, infinities and large numbers among the inputs. `reference`: onnx's
    evaluator can run it (it has no groups in ConvTranspose, no negative pads, and mixes up uneven pads in MaxPool)."""

    pattern: str
    why: str
    graph: str
    left: str
    pool: Mapping[str, Array]
    opset: int = 20
    odd: bool = False
    reference: bool = True
    tolerance: Mapping[str, float] | None = None

    @property
    def name(self) -> str:
        """The pass."""
        return self.pattern.split("/")[0]

    def model(self) -> onnx.ModelProto:
        head, body = self.graph.split("{", 1)
        inputs, outputs = (part.strip() for part in head.split("=>"))
        made = {*re.findall(r"(\w+)\s*(?=[,\w\s]*=)", body), *re.findall(r"(\w+)\s*(?:,|$)", inputs)}
        used = {k: self.pool[k] for k in re.findall(r"\w+", body) if k in self.pool and k not in made}
        more = {"com.microsoft": 1} if "com.microsoft" in body else {}
        return parse(f"agraph ({inputs}) => ({outputs}) {{ {body}", used, self.opset, **more)


class Table:
    """Cases that share their constants."""

    def __init__(self, **pool: Array) -> None:
        self.pool, self.cases = pool, list[Case]()

    def fires(self, pattern: str, graph: str, left: str, between: str = "", kept: str = "", **form: Any) -> None:
        """The pattern must be found. `between`: a value within it, with its type; where another node reads it, too, and
        where it is an output, `kept` is left."""
        case = Case(pattern, FIRES, graph, left, self.pool, **form)
        self.cases.append(case)
        if between:
            head, body = graph.rsplit("}", 1)[0].split("{", 1)
            kind, value = between.rsplit(" ", 1)
            again = f"{head.rstrip()}, {kind} zz {{ {body} zz = Neg({value}) }}"
            self.cases.append(replace(case, why="second consumer", graph=again, left=f"{kept} Neg"))
            stored = f"{head.rstrip()}, {between} {{ {body} }}"
            self.cases.append(replace(case, why="graph output", graph=stored, left=kept))

    def stays(self, pattern: str, why: str, graph: str, left: str, **form: Any) -> None:
        """The pattern must not be found."""
        self.cases.append(Case(pattern, why, graph, left, self.pool, **form))


Fill = Callable[[Table], None]
