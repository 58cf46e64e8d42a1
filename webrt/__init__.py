"""webrt runs ONNX models on WebGPU: natively, in a web page under Pyodide, or in plain JavaScript.

The public names; each is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webrt.compiler.compile import compile_model as compile_model
    from webrt.compiler.options import CompileOptions as CompileOptions
    from webrt.errors import DeviceError as DeviceError
    from webrt.errors import DeviceFreeError as DeviceFreeError
    from webrt.errors import DeviceLost as DeviceLost
    from webrt.errors import ExternalDataError as ExternalDataError
    from webrt.errors import InputError as InputError
    from webrt.errors import InvalidModel as InvalidModel
    from webrt.errors import KernelError as KernelError
    from webrt.errors import ModelError as ModelError
    from webrt.errors import NoAdapter as NoAdapter
    from webrt.errors import NotConstant as NotConstant
    from webrt.errors import OutOfMemory as OutOfMemory
    from webrt.errors import PlacementError as PlacementError
    from webrt.errors import PlanError as PlanError
    from webrt.errors import RunTerminated as RunTerminated
    from webrt.errors import SandboxError as SandboxError
    from webrt.errors import ShapeError as ShapeError
    from webrt.errors import TargetError as TargetError
    from webrt.errors import UnsupportedOp as UnsupportedOp
    from webrt.errors import UnsupportedType as UnsupportedType
    from webrt.errors import WebrtError as WebrtError
    from webrt.inference import InferenceSession as InferenceSession
    from webrt.inference import get_available_providers as get_available_providers
    from webrt.options import GraphOptimizationLevel as GraphOptimizationLevel
    from webrt.options import RunOptions as RunOptions
    from webrt.options import SessionOptions as SessionOptions
    from webrt.plan import Plan as Plan
    from webrt.planfile import load as load_plan  # noqa: F401
    from webrt.planfile import save as save_plan  # noqa: F401
    from webrt.runtime.tensor import Tensor as Tensor
    from webrt.signature import ModelMetadata as ModelMetadata
    from webrt.signature import NodeArg as NodeArg
    from webrt.target import Target as Target

    __version__: str

_NAMES = {
    "webrt.inference": ("InferenceSession", "get_available_providers"),
    "webrt.options": ("GraphOptimizationLevel", "RunOptions", "SessionOptions"),
    "webrt.signature": ("ModelMetadata", "NodeArg"),
    "webrt.compiler.compile": ("compile_model",),
    "webrt.compiler.options": ("CompileOptions",),
    "webrt.plan": ("Plan",),
    "webrt.runtime.tensor": ("Tensor",),
    "webrt.target": ("Target",),
    "webrt.errors": (
        "DeviceError", "DeviceFreeError", "DeviceLost", "ExternalDataError", "InputError", "InvalidModel",
        "KernelError", "ModelError", "NoAdapter", "NotConstant", "OutOfMemory", "PlacementError", "PlanError",
        "RunTerminated", "SandboxError", "ShapeError", "TargetError", "UnsupportedOp", "UnsupportedType", "WebrtError",
    ),
}  # fmt: skip
_WHERE = {name: (module, name) for module, names in _NAMES.items() for name in names}
_WHERE |= {"load_plan": ("webrt.planfile", "load"), "save_plan": ("webrt.planfile", "save")}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("webrt")
    if name not in _WHERE:
        raise AttributeError(f"module 'webrt' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    if module.startswith("webrt.compiler."):
        from webrt import parts

        parts.need("webrt.compiler", f"webrt.{name}")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
