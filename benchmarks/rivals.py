"""Everything that runs a model in a benchmark: natively in a process each, or in a page of one Chromium."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks import fetch
from benchmarks.models import Array, Model
from webrt.cli.assets import Progress
from webrt.errors import WebrtError

SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
"""Where Debian's chromium has SwiftShader's description for Vulkan's loader."""


class Opened(Protocol):
    """A model that an engine has loaded and run once."""

    facts: dict[str, Any]
    """`session` and `first_run` in seconds, and what else the engine tells."""

    outputs: list[Array]
    """Of the first run, in the model's order."""

    def run(self) -> float:
        """Seconds of one run. Raises WebrtError."""

    def finish(self) -> dict[str, Any]:
        """More facts, after the last run."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Rival:
    """An engine by name. `open` raises WebrtError where it cannot be had, or cannot run the model."""

    name: str
    open: Callable[[Model, Path], Opened]


class Worker:
    """benchmarks/worker.py over a model; `folder` is for files that pass between the two."""

    def __init__(self, command: list[str], environment: Mapping[str, str], model: Model, folder: Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        feeds, outputs = folder / "feeds.npz", folder / "outputs.npz"
        np.savez(feeds, **model.feeds)
        try:
            self.facts = self._call(call="open", model=str(model.path), feeds=str(feeds), outputs=str(outputs))
        except WebrtError:
            self.close()
            raise
        with np.load(outputs) as data:
            self.outputs = [data[name] for name in data.files]

    def run(self) -> float:
        return float(self._call(call="run")["seconds"])

    def finish(self) -> dict[str, Any]:
        return self._call(call="facts")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _call(self, **call: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise WebrtError("the worker has no pipes")
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(call) + "\n")
            stdin.flush()
        line = stdout.readline()
        if not line:
            raise WebrtError(f"the process ended with status {self._process.wait()}")
        made: dict[str, Any] = json.loads(line)
        if "error" in made:
            raise WebrtError(made["error"])
        return made


def native_rivals(progress: Progress) -> Iterator[Rival]:
    """webrt on the default adapter and on SwiftShader, onnxruntime's WebGPU provider there, its CPU provider."""
    script = str(Path(__file__).with_name("worker.py"))
    own = [sys.executable, script]
    swiftshader = {"VK_ICD_FILENAMES": str(SWIFTSHADER), "VK_DRIVER_FILES": str(SWIFTSHADER)}

    def worker(command: list[str], environment: Mapping[str, str]) -> Callable[[Model, Path], Opened]:
        return lambda model, folder: Worker(command, environment, model, folder)

    def software(open_: Callable[[Model, Path], Opened]) -> Callable[[Model, Path], Opened]:
        def checked(model: Model, folder: Path) -> Opened:
            if not SWIFTSHADER.is_file():
                raise WebrtError(f"SwiftShader is not installed ({SWIFTSHADER} is missing)")
            return open_(model, folder)

        return checked

    def fetched(model: Model, folder: Path) -> Opened:
        python = str(fetch.onnxruntime_webgpu(progress))
        return Worker([python, script, "onnxruntime-webgpu"], swiftshader, model, folder)

    yield Rival("webrt native", worker([*own, "webrt"], {}))
    yield Rival("webrt native SwiftShader", software(worker([*own, "webrt"], swiftshader)))
    yield Rival("onnxruntime-webgpu SwiftShader", software(fetched))
    yield Rival("onnxruntime CPU", worker([*own, "onnxruntime-cpu"], {}))
