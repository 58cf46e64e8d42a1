"""Compiles models of strangers in a process that can only compute; needs no device, no ONNX and no numpy here.

`compile` starts `webrt.compiler.worker`, which locks itself before it reads a byte of the model, and checks what comes
back. docs/security.md says what each layer stops and what remains.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from webrt import errors, planfile, validate
from webrt.compiler.datafiles import DataFiles, Reader, model_bytes
from webrt.compiler.options import CompileOptions
from webrt.confine import Layer, Limits
from webrt.confine.parent import Worker
from webrt.confine.pool import Pool
from webrt.errors import ExternalDataError, PlanError, SandboxError, WebrtError
from webrt.known import PYTHON
from webrt.plan import Bytes, PlacedNode

__all__ = ["Artifact", "Compiler", "Layer", "Limits", "compile", "status"]

logger = logging.getLogger("webrt")
Model: TypeAlias = str | os.PathLike[str] | Bytes
_MAX_TEXT = 20_000
_MAX_MESSAGE = 64 << 20
_NOT_SENT = ("optimized_path", "optimized", "external_data", "progress")


@dataclass(frozen=True)
class Artifact:
    """What a confined compilation gives: the optimised `.onnx` and the `.webrt` plan as bytes (None where not asked
    for), the placement report, the layers that were on, and what was done to the precision, if it was asked for. The
    plan satisfies `webrt.validate`."""

    onnx: bytes | None
    plan: bytes | None
    placement: tuple[PlacedNode, ...]
    layers: tuple[Layer, ...]
    precision: Mapping[str, Any] = field(default_factory=dict)


def compile(
    model: Model, options: CompileOptions | None = None, *, wants: Sequence[str] = ("plan",),
    limits: Limits | None = None, require: bool = False,
) -> Artifact:  # fmt: skip
    """Compiles a model (a path, or its bytes) in a confined worker process.

    `wants` has "plan", "onnx" or both. A layer that this system lacks is logged as a warning; with `require` it is a
    SandboxError. Raises what `compile_model` raises, and SandboxError where the worker was killed, ran out of time,
    memory or room for its output, or was refused a call. Nothing is left running.
    """
    with Worker(limits or Limits(), prepare=True) as worker:
        return _run(worker, model, options or CompileOptions(), wants, require)


class Compiler:
    """Compiles in workers that are ready beforehand, for servers: one process per model, never used for another.

    `spares` workers wait, each with its modules in memory (about 150 MB). Threads may share a Compiler.
    """

    def __init__(self, limits: Limits | None = None, *, spares: int = 1, require: bool = False) -> None:
        self._pool = Pool(limits or Limits(), spares)
        self._require = require

    def compile(
        self, model: Model, options: CompileOptions | None = None, *, wants: Sequence[str] = ("plan",)
    ) -> Artifact:
        """As `webrt.sandbox.compile`; the limit on time counts from this call."""
        with self._pool.worker() as worker:
            return _run(worker, model, options or CompileOptions(), wants, self._require)

    def close(self) -> None:
        """Ends all workers, those at work too."""
        self._pool.close()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def status() -> tuple[Layer, ...]:
    """The layers, each as it is in a worker that has just locked itself. Raises SandboxError where none starts."""
    with Worker(Limits(seconds=60), prepare=False) as worker:
        return worker.layers()


def _run(worker: Worker, model: Model, options: CompileOptions, wants: Sequence[str], require: bool) -> Artifact:
    """One compilation by a worker that has got nothing but its limits."""
    if options.optimized_path is not None or options.optimized is not None:
        raise SandboxError("a confined compilation returns the optimised model: ask for it by wants=('onnx',)")
    data, folder = _read(model, worker.limits.memory)
    layers = _ready(worker, require)
    _request(worker, data, options, wants)
    given = options.external_data
    read = given if callable(given) else DataFiles(folder, given or {})
    found: dict[str, bytearray] = {}
    while "done" not in found:
        tag, payload = worker.receive()
        if tag == "need":
            _answer(worker, payload, read)
        elif tag == "progress":
            _progress(payload, options.progress)
        elif tag == "error":
            raise _error(payload, worker.limits)
        elif tag in ("done", *wants):
            found[tag] = payload
        else:
            raise SandboxError(f"the worker sent {tag!r}, which nobody asked for")
    return _artifact(found, wants, layers)


def _read(model: Model, most: int) -> tuple[Bytes, Path | None]:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return model, None
    return model_bytes(Path(model), most), Path(model).parent


def _ready(worker: Worker, require: bool) -> tuple[Layer, ...]:
    layers = worker.layers()
    missing = "; ".join(f"{layer.name}: {layer.detail}" for layer in layers if not layer.on)
    if missing and require:
        raise SandboxError(f"the sandbox is not complete here ({missing})")
    if missing:
        logger.warning("the sandbox is not complete here (%s)", missing)
    return layers


def _request(worker: Worker, model: Bytes, options: CompileOptions, wants: Sequence[str]) -> None:
    samples = [(name, *_packed(a)) for sample in options.precision.samples for name, a in sample.items()]
    arrays = [(name, *_packed(array)) for name, array in options.known_inputs.items()] + samples
    specs = [{"name": name, **spec} for name, spec, _ in arrays]
    known, sampled = specs[: len(options.known_inputs)], specs[len(options.known_inputs) :]
    precision = {**vars(options.precision), "samples": [len(sample) for sample in options.precision.samples]}
    plain = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in _NOT_SENT}
    request = {
        **plain, "wants": list(wants), "known_inputs": known, "target": options.target.to_json(),
        "disabled": sorted(options.disabled), "precision": precision, "samples": sampled,
    }  # fmt: skip
    worker.send("options", json.dumps(request).encode())
    for _, _, data in arrays:
        worker.send("array", data)
    worker.send("model", model)


def _packed(given: Any) -> tuple[dict[str, Any], bytes]:
    """An array's type and shape, and its elements as bytes (strings as JSON); Python's own values as JSON."""
    import numpy as np

    if isinstance(given, PYTHON):
        return {"dtype": "", "shape": ()}, json.dumps(given).encode()
    array = np.asarray(given)
    if array.dtype.kind in "OSU":
        texts = [x.decode() if isinstance(x, bytes) else str(x) for x in array.reshape(-1).tolist()]
        return {"dtype": "object", "shape": array.shape}, json.dumps(texts).encode()
    return {"dtype": str(array.dtype), "shape": array.shape}, array.tobytes()


def _answer(worker: Worker, payload: bytearray, read: Reader) -> None:
    """Sends external data, by the rules that hold without a sandbox as well: nothing outside the model's folder."""
    need = _parsed(payload, dict)
    tensor, location = str(need.get("tensor")), str(need.get("location"))
    offset, count = need.get("offset"), need.get("count")
    if type(offset) is not int or offset < 0 or not (count is None or (type(count) is int and count >= 0)):
        raise SandboxError("the worker asked for data that cannot be")
    try:
        worker.send("data", read(tensor, location, offset, count))
    except ExternalDataError as e:
        worker.send("error", str(e).encode("utf-8", "replace"))


def _progress(payload: bytearray, report: Callable[[str, int, int], None] | None) -> None:
    stage, done, total = (_parsed(payload, list) + [None] * 3)[:3]
    if report is not None and isinstance(stage, str) and type(done) is int and type(total) is int:
        report(_clean(stage), done, total)


def _artifact(found: Mapping[str, bytearray], wants: Sequence[str], layers: tuple[Layer, ...]) -> Artifact:
    for what in wants:
        if what not in found:
            raise SandboxError(f"the worker returned no {what}")
    try:
        done = _parsed(found["done"], dict)
        placement, precision = tuple(PlacedNode(**entry) for entry in done["placement"]), dict(done["precision"])
    except (TypeError, KeyError, ValueError) as e:
        raise SandboxError(f"the worker returned a damaged placement report: {e}") from e
    if "plan" in found:
        try:
            validate.validate(planfile.load(found["plan"]))
        except PlanError as e:
            raise SandboxError(f"the worker returned a plan that breaks the rules: {e}") from e
    files = {what: bytes(found[what]) for what in wants}
    return Artifact(files.get("onnx"), files.get("plan"), placement, layers, precision)


def _error(payload: bytearray, limits: Limits) -> WebrtError:
    """The worker's error, as the class that it is there."""
    told = _parsed(payload, dict)
    what = _clean(str(told.get("what", "")))
    kind = told.get("kind")
    if kind == "memory":
        return SandboxError(f"out of memory: compiling needs more than {limits.memory / 1e9:.2f} GB; raise the limit")
    if kind == "refused":
        return SandboxError(f"a call was refused: {what}")
    cls = getattr(errors, str(told.get("class")), None)
    if kind != "webrt" or not (isinstance(cls, type) and issubclass(cls, WebrtError)):
        return SandboxError(f"the compiler failed: {what}")
    error = cls(what)
    if isinstance(error, errors.NotConstant):
        error.wanted, error.roots = (frozenset(_clean(str(x)) for x in told.get(k, ())) for k in ("wanted", "roots"))
    place = {key: _clean(str(told.get(key, ""))) for key in ("node", "op", "inputs")}
    opset = told.get("opset")
    return error.at(**place, opset=opset if type(opset) is int else None)


def _parsed(payload: bytearray, kind: type[Any]) -> Any:
    if len(payload) > _MAX_MESSAGE:
        raise SandboxError(f"too much output: a message of {len(payload)} bytes")
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError) as e:
        raise SandboxError(f"the worker sent something that is no message: {e}") from e
    if not isinstance(data, kind):
        raise SandboxError("the worker sent a message of the wrong form")
    return data


def _clean(text: str) -> str:
    """A stranger's text, fit for a terminal and a log: bounded, no control characters."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text[:_MAX_TEXT])
