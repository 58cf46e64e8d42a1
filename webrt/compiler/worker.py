"""The confined half of `webrt.sandbox`: a process that compiles one model and ends.

Imports everything, then locks itself, then reads the model. Messages on descriptors 0 and 1 (`webrt.confine.frames`):

parent → worker   limits · options · array (one per known input, and per input of a sample) · model · then an answer to
                  each need: data or error
worker → parent   ready (the layers) · progress · need (external data) · onnx · plan · done (the placement, and what
                  was done to the precision) or error
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from webrt.confine import Limits, frames, lock
from webrt.errors import ExternalDataError, WebrtError

# What compiling imports on first use only.
LATE_MODULES = (
    "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.unicode_escape", "encodings.utf_16",
    "google.protobuf.text_format", "ml_dtypes", "numpy.fft", "numpy.linalg", "numpy.random", "webrt.compiler.compile",
    "webrt.compiler.control", "webrt.compiler.precision", "webrt.host.functions", "webrt.host.reference",
    "webrt.host.graph", "webrt.planfile",
)  # fmt: skip


def main() -> int:
    """Serves one model; the exit code is 0 where the parent got an answer."""
    sys.stdout = sys.stderr
    try:
        serve(0, 1)
    except (frames.FrameError, BrokenPipeError):
        return 1
    return 0


def serve(source: int, sink: int) -> None:
    """Reads limits, locks this process and, where an `options` message follows, compiles.

    Raises FrameError or BrokenPipeError where the parent is gone.
    """
    _, payload = frames.receive(source, _ANY)
    settings = json.loads(payload)
    if settings.pop("prepare"):
        prepare()
    layers = lock(Limits(**settings))
    frames.send(sink, "ready", [_json([asdict(layer) for layer in layers])])
    problem = _problem_of(source, sink)
    if problem is not None:
        frames.send(sink, "error", [_json(problem)])


def prepare() -> None:
    """Loads all that compiling needs of the disk: modules, operators, schemas, WGSL bodies."""
    for name in LATE_MODULES:
        importlib.import_module(name)
    from webrt import costs, resources, schemas
    from webrt.host import reference, registry

    registry.registered()
    reference.load_all()
    schemas.register()
    resources.load_shaders()
    costs.shipped()
    warnings.simplefilter("ignore")  # showing one would open its source file


_ANY = 1 << 62


def _problem_of(source: int, sink: int) -> dict[str, Any] | None:
    """Compiles; the error as a message, None where there was none."""
    try:
        _compile(source, sink)
        return None
    except (frames.FrameError, BrokenPipeError):
        raise
    except Exception as e:
        return problem(e)


def problem(error: Exception) -> dict[str, Any]:
    """An error as a message."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return {"kind": "memory"}
    if isinstance(error, WebrtError):
        more = {"wanted": sorted(getattr(error, "wanted", ())), "roots": sorted(getattr(error, "roots", ()))}
        return {
            "kind": "webrt", "class": type(error).__name__, "what": error.what, "node": error.node, "op": error.op,
            "opset": error.opset, "inputs": error.inputs, **more,
        }  # fmt: skip
    if isinstance(error, PermissionError):
        return {"kind": "refused", "what": str(error)}
    return {"kind": "other", "what": f"{type(error).__name__}: {error}"}


def _compile(source: int, sink: int) -> None:
    from webrt import planfile
    from webrt.compiler.compile import compile_model
    from webrt.compiler.options import CompileOptions, Precision
    from webrt.target import Target

    request = json.loads(_expect(source, "options"))
    wants = request.pop("wants")
    known = _arrays(source, request.pop("known_inputs"))
    precision, sampled = request.pop("precision"), iter(request.pop("samples"))
    samples = tuple(_arrays(source, list(islice(sampled, count))) for count in precision["samples"])
    models: list[bytes] = []
    options = CompileOptions(
        **{**request, "providers": tuple(request["providers"]), "target": Target.from_json(request["target"])},
        known_inputs=known, optimized=models.append if "onnx" in wants else None,
        external_data=_Parent(source, sink), precision=Precision(**{**precision, "samples": samples}),
        progress=lambda *stage: frames.send(sink, "progress", [_json(stage)]),
    )  # fmt: skip
    made = compile_model(_expect(source, "model"), options)
    if "onnx" in wants:
        frames.send(sink, "onnx", [models[-1]])
    if "plan" in wants:
        frames.send(sink, "plan", list(planfile.dump_chunks(made)))
    done = {"placement": [asdict(p) for p in made.placement], "precision": made.meta.get("precision", {})}
    frames.send(sink, "done", [_json(done)])


class _Parent:
    """A datafiles.Reader that asks the parent."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink

    def __call__(self, tensor: str, location: str, offset: int, count: int | None) -> bytes:
        need = {"tensor": tensor, "location": location, "offset": offset, "count": count}
        frames.send(self.sink, "need", [_json(need)])
        tag, payload = frames.receive(self.source, _ANY)
        if tag != "data":
            raise ExternalDataError(payload.decode())
        return bytes(payload)


def _expect(source: int, tag: str) -> bytearray:
    got, payload = frames.receive(source, _ANY)
    if got != tag:
        raise frames.FrameError(f"{got!r} arrived where {tag!r} was expected")
    return payload


def _arrays(source: int, specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {spec["name"]: _array(spec, _expect(source, "array")) for spec in specs}


def _array(spec: Mapping[str, Any], payload: bytearray) -> Any:
    import numpy as np

    if not spec["dtype"]:
        return json.loads(payload)
    if spec["dtype"] == "object":
        return np.array(json.loads(payload), dtype=object).reshape(spec["shape"])
    return np.frombuffer(payload, np.dtype(spec["dtype"])).reshape(spec["shape"])


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


if __name__ == "__main__":
    os._exit(main())
