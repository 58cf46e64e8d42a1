"""The page's Python: opens the bytes of a model or a plan and runs them. worker.js calls it under Pyodide.

A tensor crosses the border as [name, element type, dims, bytes], or with a list of texts instead of the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import ocr
from pyodide.ffi import to_js

from webrt import plan as P
from webrt import signature
from webrt.compiler import frontend
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.dtypes import BY_NAME
from webrt.errors import InputError, NoAdapter, NotConstant
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.runtime import browser
from webrt.runtime import tensor as T
from webrt.runtime.browser import BrowserDevice, BrowserSession
from webrt.runtime.null import NullDevice
from webrt.runtime.session import Session
from webrt.validate import validate

_STAGES = {"download": "Uploading constants", "pipelines": "Making pipelines"}
_COMPILE = "Compiling"


async def open_model(data: Any, report: Any) -> Opened:
    """A model (`.onnx`) or a plan (`.webrt`) on the page's device; on the CPU provider where there is no adapter."""
    await browser.prepare()
    try:
        device: BrowserDevice | None = browser.open_device({})
    except NoAdapter:
        device = None
    opened = Opened(device, report)
    await opened.load(data.to_bytes())
    return opened


class Opened:
    """What is open: `plan` is None while elements of inputs decide it and none were given."""

    def __init__(self, device: BrowserDevice | None, report: Any) -> None:
        self.device, self.report = device, report
        self.plan: Plan | None = None
        self.signature: signature.Signature
        self._model: Any = None
        self._roots: frozenset[str] = frozenset()
        self._session: BrowserSession | Session | None = None

    async def load(self, data: bytes) -> None:
        """Compiles a model, or reads a plan; pipelines are made where the plan is known."""
        if data[8:9] == b"{":
            self.plan = P.load(data)
            validate(self.plan)
            self.signature = signature.of_plan(self.plan)
        else:
            self._model = frontend.read_model(data)
            try:
                self.plan = self._compile({})
                self.signature = signature.of_plan(self.plan)
            except NotConstant as error:
                if not error.roots:
                    raise
                self._roots = error.roots
                self.signature = signature.of_graph(frontend.load(self._model))
        if self.plan is not None:
            await self._open(self.plan)

    def description(self) -> str:
        """JSON: inputs [{name, dtype, shape}], placement, and whether there is an adapter."""
        inputs = [{"name": a.name, "dtype": _element_type(a.type), "shape": _named(a)} for a in self.signature.inputs]
        placement = [] if self.plan is None else [dict(p.__dict__) for p in self.plan.placement]
        return json.dumps({"inputs": inputs, "placement": placement, "webgpu": self.device is not None})

    def plan_bytes(self) -> Any:
        """The `.webrt` file. Raises NotConstant where inputs decide the plan and nothing has run yet."""
        if self.plan is None:
            raise NotConstant(f"the plan depends on the elements of {', '.join(sorted(self._roots))}; run once first")
        return to_js(P.dump(self.plan))

    async def run(self, tensors: Any) -> Any:
        """The outputs of one run."""
        feeds = {name: _array(dtype, dims, data) for name, dtype, dims, data in tensors.to_py()}
        if self._roots:
            self.plan = self._compile({name: feeds[name] for name in self._roots})
            await self._open(self.plan)
        session = self._session
        if session is None:
            raise InputError("the model was closed; open it again")
        made = session.run(None, feeds) if isinstance(session, Session) else await session.arun(None, feeds)
        names = [a.name for a in self.signature.outputs]
        return to_js([_wire(name, value) for name, value in zip(names, made, strict=True)])

    def close(self) -> None:
        """Frees the device's memory."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _compile(self, known: Mapping[str, Any]) -> Plan:
        options: dict[str, Any] = {"target": self.device.target} if self.device else {"providers": ("cpu",)}
        progress = lambda stage, done, total: self.report(_COMPILE, done, total)  # noqa: E731
        plan = compile_model(self._model, CompileOptions(known_inputs=known, progress=progress, **options))
        self.report(_COMPILE, 1, 1)
        return plan

    async def _open(self, plan: Plan) -> None:
        self.close()
        host = CpuProvider() if plan.host_steps else None
        if self.device is None and len(plan.host_steps) < len(plan.steps):
            raise NoAdapter("a .webrt plan needs WebGPU, and the browser found no adapter; open the .onnx instead")
        if self.device is None:
            self._session = Session(plan, NullDevice(), host)
            return
        session = BrowserSession(plan, self.device, host, lambda stage, *n: self.report(_STAGES.get(stage, stage), *n))
        self._session = session
        await session.ready()


def network_input(pixels: Any, height: int, width: int) -> Any:
    """A picture's RGBA bytes as the recogniser's input."""
    rgba = np.frombuffer(pixels.to_py(), np.uint8).reshape(height, width, 4)
    return to_js(_wire("", ocr.network_input(rgba[:, :, :3])))


def text_of(opened: Opened, tensor: Any) -> Any:
    """[text, confidence] of the recogniser's output."""
    _, dtype, dims, data = tensor.to_py()
    alphabet = ocr.characters(opened.signature.meta.custom_metadata_map)
    return to_js(ocr.text_of(_array(dtype, dims, data), alphabet))


def _named(arg: signature.NodeArg) -> list[int | str]:
    return [f"{arg.name}.{axis}" if size is None else size for axis, size in enumerate(arg.shape)]


def _element_type(kind: str) -> str:
    """float32 of tensor(float); "" for what is no tensor."""
    return next((name for name in BY_NAME if signature.tensor_type(name) == kind), "")


def _array(dtype: str, dims: list[int], data: Any) -> Any:
    if dtype == "string":
        return np.array(data, dtype=object).reshape(dims)
    return T.from_bytes(data, BY_NAME[dtype], dims)


def _wire(name: str, value: Any) -> list[Any]:
    if not isinstance(value, np.ndarray):
        return [name, "", None, [str(value)]]
    if value.dtype == object:
        return [name, "string", list(value.shape), [str(x) for x in value.reshape(-1)]]
    return [name, T.dtype_name(value), list(value.shape), T.to_bytes(value)]
