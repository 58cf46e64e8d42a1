"""What each pass did: told to `CompileOptions.passes`, and written to a folder where WEBRT_DUMP names one.

WEBRT_DUMP=DIR writes DIR/0, DIR/1, … per compilation: the model after each basic pass that changed it (`.onnx`), the
placement after each extended pass (`.txt`), the kernels (`.wgsl`) and the plan (`plan.json`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from webrt.compiler import export
from webrt.compiler.lines import Lines
from webrt.compiler.options import PassRecord
from webrt.errors import PlanError
from webrt.files import atomic_file
from webrt.ir import Graph
from webrt.plan import Plan

VARIABLE = "WEBRT_DUMP"


class Trace:
    """Watches one compilation. `tell` is called after each pass that ran; `folder` gets the files."""

    def __init__(self, tell: Callable[[PassRecord], None] | None = None, folder: Path | None = None) -> None:
        self._tell, self._folder, self._count = tell, folder, 0

    def basic(self, name: str, graph: Graph, run: Callable[[Graph], bool]) -> bool:
        """Runs a pass over the graph; returns whether it changed something."""
        before, start = len(graph.nodes), time.perf_counter()
        changed = run(graph)
        self._record(name, before, len(graph.nodes), start)
        if changed and self._folder is not None:
            self._write(f"{name}.onnx", export.to_model(graph).SerializeToString(deterministic=True))
        return changed

    def extended(self, name: str, lines: Lines, run: Callable[[Lines], None]) -> None:
        """Runs a pass over the placed nodes; those with a kernel of their own are counted."""
        before, start = _kernels(lines), time.perf_counter()
        run(lines)
        self._record(name, before, _kernels(lines), start)
        if self._folder is not None:
            text = "".join(f"{p.how}\t{p.node.op}\t{p.node.name}\t{p.reason}\n" for p in lines.placed)
            self._write(f"{name}.txt", text.encode())

    def plan(self, plan: Plan) -> None:
        """Writes the kernels and the plan."""
        if self._folder is not None:
            for k in plan.kernels:
                self._write(f"{k.name}-{k.hash}.wgsl", k.wgsl.encode(), numbered=False)
            text = json.dumps(plan.to_json(), indent=1, ensure_ascii=False)
            self._write("plan.json", text.encode(), numbered=False)

    def _record(self, name: str, before: int, after: int, start: float) -> None:
        if self._tell is not None:
            self._tell(PassRecord(name, before, after, time.perf_counter() - start))

    def _write(self, name: str, data: bytes, numbered: bool = True) -> None:
        if self._folder is None:
            return
        prefix = f"{self._count:03}-" if numbered else ""
        self._count += numbered
        try:
            with atomic_file(self._folder / f"{prefix}{name}") as out:
                out.write(data)
        except OSError as e:
            raise PlanError(f"{VARIABLE}: cannot write to {self._folder}: {e.strerror or e}") from e


def trace_of(tell: Callable[[PassRecord], None] | None) -> Trace:
    """The trace that a caller and the environment ask for. Raises PlanError where the folder cannot be made."""
    root = os.environ.get(VARIABLE)
    return Trace(tell, _fresh(Path(root)) if root else None)


def _fresh(root: Path) -> Path:
    number = 0
    while True:
        try:
            (root / str(number)).mkdir(parents=True)
            return root / str(number)
        except FileExistsError:
            number += 1
        except OSError as e:
            raise PlanError(f"{VARIABLE}: cannot make {root / str(number)}: {e.strerror or e}") from e


def _kernels(lines: Lines) -> int:
    return sum(p.how == "kernel" for p in lines.placed)
