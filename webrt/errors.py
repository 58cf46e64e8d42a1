"""Every error that crosses webrt's public surface.

WebrtError
├─ ModelError       the model itself
│   ├─ InvalidModel · UnsupportedOp · UnsupportedType · ShapeError · NotConstant · ExternalDataError
├─ PlanError        a .webrt plan is damaged, truncated, of another version, or breaks a rule of validate.py
├─ PlacementError   strict mode met a node that would run on the CPU; a bare player met a host step
├─ TargetError      a plan needs a limit or a feature that the target lacks
├─ KernelError      WGSL was refused
├─ InputError       a feed is missing, extra, of the wrong type or of the wrong shape
├─ DeviceError      NoAdapter · DeviceLost · OutOfMemory · DeviceFreeError
├─ RunTerminated    the caller, or a time, ended a run
└─ SandboxError     the confined worker was killed, ran out of time or memory, or was refused a call
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "DeviceError",
    "DeviceFreeError",
    "DeviceLost",
    "ExternalDataError",
    "InputError",
    "InvalidModel",
    "KernelError",
    "ModelError",
    "NoAdapter",
    "NotConstant",
    "OutOfMemory",
    "PlacementError",
    "PlanError",
    "RunTerminated",
    "SandboxError",
    "ShapeError",
    "TargetError",
    "UnsupportedOp",
    "UnsupportedType",
    "WebrtError",
]


def counted(n: int, noun: str) -> str:
    """ "1 node", "2 nodes", for a text."""
    return f"{n} {noun}{'' if n == 1 else 'es' if noun.endswith('ch') else 's'}"


class WebrtError(Exception):
    """The root. `what` says what is wrong and what to do; the keywords say where.

    `node` is a node's name, `op` its operator ("Conv" or "com.microsoft:MatMulNBits"), `opset` the version of
    the operator's domain in the model, `inputs` a text of types and shapes as far as they are known.
    """

    def __init__(self, what: str, *, node: str = "", op: str = "", opset: int | None = None, inputs: str = "") -> None:
        self.what, self.node, self.op, self.opset, self.inputs = what, node, op, opset, inputs
        super().__init__(self._text())

    def _text(self) -> str:
        where = []
        if self.op:
            where.append(self.op + (f" (opset {self.opset})" if self.opset is not None else ""))
        if self.node:
            where.append(f"node {self.node!r}")
        if self.inputs:
            where.append(f"inputs {self.inputs}")
        return f"{', '.join(where)}: {self.what}" if where else self.what

    def at(self, *, node: str = "", op: str = "", opset: int | None = None, inputs: str = "") -> WebrtError:
        """The same error with the place filled in where it was not known; returns self."""
        self.node, self.op, self.inputs = self.node or node, self.op or op, self.inputs or inputs
        self.opset = self.opset if self.opset is not None else opset
        self.args = (self._text(),)
        return self

    def of_file(self, name: str) -> WebrtError:
        """The same error with the file's name, where it lacks it: in place of "the model" at its start, else before it;
        returns self."""
        if name not in str(self):
            start = "the model "
            named = self.what.startswith(start)
            self.what = f"{name} {self.what.removeprefix(start)}" if named else f"{name}: {self.what}"
        return self.at()


class ModelError(WebrtError):
    """The model cannot be compiled."""


class InvalidModel(ModelError):
    """Not an ONNX model, or one that breaks ONNX's rules."""


class UnsupportedOp(ModelError):
    """No provider of the session runs this operator at this opset."""


class UnsupportedType(ModelError):
    """A value has a type that the provider cannot hold."""


class ShapeError(ModelError):
    """Shapes do not fit together, or a size is out of bounds."""


class NotConstant(ModelError):
    """A lowering needs the elements (or the rank) of a value that is not known before the run.

    `wanted` names that value; `roots` the graph inputs that decide it, with "" among them where it is computed from
    tensors that no caller can be expected to give beforehand. `conditions` are sizes of which has to be known whether
    they are 0: their text → a plan's program of sizes, whose last value it is. `shapes` are the graph inputs' shapes,
    of ints and names, which decide that.
    """

    def __init__(
        self, what: str, *, wanted: str = "", roots: frozenset[str] = frozenset(),
        conditions: Mapping[str, list[list[Any]]] | None = None,
        shapes: Mapping[str, tuple[int | str, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.wanted = frozenset({wanted} if wanted else ())
        self.roots, self.conditions, self.shapes = roots, dict(conditions or {}), dict(shapes or {})
        super().__init__(what)


class ExternalDataError(ModelError):
    """External data is missing, short, or points outside the model's folder."""


class PlanError(WebrtError):
    """A plan is damaged, truncated, of another version, or breaks a rule."""


class PlacementError(WebrtError):
    """A node would run where the session forbids it."""


class TargetError(WebrtError):
    """The plan needs a limit or a feature that the target lacks; both numbers are named."""


class KernelError(WebrtError):
    """A device refused WGSL; the text carries a numbered excerpt, the kernel and the node.

    `kernel` is the hash of the plan's kernel that was refused, "" where none was; `said` what is wrong with it, in one
    line.
    """

    kernel: str = ""
    said: str = ""


class InputError(WebrtError):
    """A feed is missing, extra, of the wrong type or of the wrong shape."""


class DeviceError(WebrtError):
    """The device cannot do what was asked.

    `step` is the plan's step that was refused, -1 where it is none or not known.
    """

    step: int = -1


class NoAdapter(DeviceError):
    """No WebGPU adapter was found; says what to install or to switch on."""


class DeviceLost(DeviceError):
    """The device is gone; the session has to be recovered or made anew."""


class OutOfMemory(DeviceError):
    """The device has no memory left for an allocation; sizes are named."""


class DeviceFreeError(DeviceError):
    """A path that must not touch a device asked for device memory."""


class RunTerminated(WebrtError):
    """The caller ended the run (`RunOptions.terminate`), or its time was over (`session.run_timeout`) while the device
    answered; the session can be used again."""


class SandboxError(WebrtError):
    """The confined worker was killed, ran out of time or memory, or was refused a call."""
