"""The page's Python: opens the bytes of a model or a plan and runs them. worker.js calls it under Pyodide.

A tensor crosses the border as [name, element type, dims, bytes], or with a list of texts instead of the bytes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import ocr
from pyodide.ffi import to_js

from webrt import InferenceSession, SessionOptions, signature
from webrt import plan as P
from webrt.dtypes import BY_NAME
from webrt.errors import NotConstant
from webrt.options import WEBGPU
from webrt.runtime import tensor as T

_STAGES = {"compile": "Compiling", "download": "Uploading constants", "pipelines": "Making pipelines"}


async def open_model(data: Any, report: Any) -> Opened:
    """A model (`.onnx`) or a plan (`.webrt`) on the page's device; on the CPU provider where there is no adapter."""
    options = SessionOptions()
    options.progress = lambda stage, done, total: report(_STAGES[stage], done, total)
    options.log_severity_level = 4
    options.add_session_config_entry("session.auto_recover", "1")
    return Opened(await InferenceSession.create(data.to_bytes(), options))


class Opened:
    """A session, as worker.js uses it."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._device, self._replaced = session.device, 0

    @property
    def devices(self) -> int:
        """How often a lost device was replaced."""
        if self.session.device is not self._device:
            self._device, self._replaced = self.session.device, self._replaced + 1
        return self._replaced

    def description(self) -> str:
        """JSON: inputs [{name, dtype, shape, fixed}], placement, and whether there is an adapter."""
        inputs = [_describe(a) | {"fixed": a.name in self.session.fixed_inputs} for a in self.session.get_inputs()]
        try:
            placement = [dict(p.__dict__) for p in self.session.get_placement()]
        except NotConstant:
            placement = []
        webgpu = WEBGPU in self.session.get_providers()
        return json.dumps({"inputs": inputs, "placement": placement, "webgpu": webgpu})

    def plan_bytes(self) -> Any:
        """The `.webrt` file. Raises NotConstant where inputs decide the plan and nothing has run yet."""
        return to_js(P.dump(self.session.plan))

    async def run(self, tensors: Any) -> Any:
        """The outputs of one run."""
        feeds = {name: _array(dtype, dims, data) for name, dtype, dims, data in tensors.to_py()}
        made = await self.session.arun(None, feeds)
        names = [a.name for a in self.session.get_outputs()]
        return to_js([_wire(name, value) for name, value in zip(names, made, strict=True)])

    def close(self) -> None:
        """Frees the device's memory."""
        self.session.close()


def network_input(pixels: Any, height: int, width: int) -> Any:
    """A picture's RGBA bytes as the recogniser's input."""
    rgba = np.frombuffer(pixels.to_py(), np.uint8).reshape(height, width, 4)
    return to_js(_wire("", ocr.network_input(rgba[:, :, :3])))


def text_of(opened: Opened, tensor: Any) -> Any:
    """[text, confidence] of the recogniser's output."""
    _, dtype, dims, data = tensor.to_py()
    alphabet = ocr.characters(opened.session.get_modelmeta().custom_metadata_map)
    return to_js(ocr.text_of(_array(dtype, dims, data), alphabet))


def _describe(arg: signature.NodeArg) -> dict[str, Any]:
    """`dtype` is "" for what is no tensor."""
    dtype = next((name for name in BY_NAME if signature.tensor_type(name) == arg.type), "")
    shape = [f"{arg.name}.{axis}" if size is None else size for axis, size in enumerate(arg.shape)]
    return {"name": arg.name, "dtype": dtype, "shape": shape}


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
