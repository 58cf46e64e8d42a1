"""From a file and options to a plan and sessions of it: chooses the device, compiles, reports the placement."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from webrt import parts, planfile, signature
from webrt.bounds import Bounds
from webrt.errors import InputError, NoAdapter, NotConstant, PlacementError, counted
from webrt.options import (
    CPU,
    DEVICE_OPTIONS,
    DISABLED_PASSES,
    WEBGPU,
    GraphOptimizationLevel,
    Provider,
    SessionOptions,
)
from webrt.plan import Plan
from webrt.runtime import devices, tuning
from webrt.runtime.device import HostProvider
from webrt.runtime.devices import AnyDevice, AnySession
from webrt.runtime.log import Log
from webrt.runtime.null import NullDevice
from webrt.runtime.tuning import Tuning
from webrt.signature import Signature

if TYPE_CHECKING:
    import onnx

    from webrt.compiler.compile import CompileOptions
    from webrt.runtime.profile import Recorded

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"

Loaded: TypeAlias = tuple[Signature, Plan | None, NotConstant | None]
"""Signature, plan, and what has to be known of the inputs before there is a plan."""

_LEVELS: dict[int, Any] = {0: "disabled", 1: "basic", 2: "extended", 99: "all"}


class Loader:
    """Loads one model for one list of providers (None: WebGPU where an adapter exists, then the CPU).

    `providers` are those in use; `device` is a NullDevice where the CPU runs everything, and in compile-only mode;
    `profile` is where sessions add the runs that they time, `tuning` what they know of the fastest kernels.
    """

    def __init__(self, options: SessionOptions, asked: list[Provider] | None) -> None:
        self.options = options
        self.log = Log(options.log_severity_level)
        self.compile_only = options.is_set("session.compile_only")
        self.strict = options.is_set("session.disable_cpu_ep_fallback")
        self._asked = asked
        self.device: AnyDevice = NullDevice()
        self._device_options: Mapping[str, Any] = {}
        self._tuning_options: Mapping[str, Any] = {}
        self.tuning: Tuning | None = None
        self._no_device: NoAdapter | None = None
        for line in options.warnings():
            self.log.warning(line)
        self.providers = self._choose(asked)
        self.profile: list[Recorded] | None = [] if options.enable_profiling else None
        self._model: onnx.ModelProto | None = None
        self._host: HostProvider | None = None

    def load(self, source: Any) -> Loaded:
        """Reads a `.webrt` plan, or reads and compiles a model. Raises ModelError, PlanError and PlacementError, and
        NoAdapter for a plan with kernels where there is no device."""
        if not is_plan(source):
            parts.need("webrt.compiler", "compiling a model")
        loaded = self._load_plan(source) if is_plan(source) else self._load_model(source)
        if loaded[1] is not None:
            self.report(loaded[1])
        return loaded

    def compile_known(self, known: Mapping[str, Any], assumed: Mapping[str, bool]) -> Plan:
        """The model for known elements of inputs, for other initializers, and for sizes that are 0 or not; the
        plan does not compare feeds with them. Raises InputError for a `.webrt`."""
        from webrt.compiler.compile import compile_model

        if self._model is None:
            raise InputError("a .webrt file cannot be compiled again for other initializers; use the .onnx")
        plan = compile_model(self._model, self._compile_options(known_inputs=known, assumed=assumed))
        return replace(plan, meta={k: v for k, v in plan.meta.items() if k != "known"})

    def open(self, plan: Plan) -> AnySession:
        """A session on the device; with the CPU provider where the plan has host steps."""
        if plan.host_steps and self._host is None:
            parts.need("webrt.host", "a plan with nodes for the CPU")
            from webrt.host import CpuProvider

            self._host = CpuProvider()
        if self.tuning is None and self._tuning_options and not isinstance(self.device, NullDevice):
            self.tuning = tuning.of_options(self.device, self._tuning_options, self.log)
            report = self.options.progress
            if self.tuning is not None:
                self.tuning.timeout = self.options.seconds("session.run_timeout")
            if self.tuning is not None and report is not None:
                self.tuning.progress = functools.partial(report, "tuning")
        made = devices.open_session(plan, self.device, self._host, self.options.progress, self.tuning, self.log)
        made.profile = self.profile
        return made

    def reopen_device(self) -> None:
        """Takes another device where the last was lost: sessions that shared it share the new one. Raises NoAdapter."""
        if self.device.lost:
            self.device = devices.open_device(self._device_options)

    def report(self, plan: Plan) -> None:
        """One line on who runs what; a warning where a preferred provider did not take every node."""
        counts = Counter(str(p.provider) for p in plan.placement)
        text = ", ".join(f"{counted(n, 'node')} on {k}" for k, n in counts.items()) or "no nodes"
        reasons = Counter(f"{p.op}: {p.reason}" for p in plan.placement if p.how == "host")
        if reasons:
            text += "; on the CPU because: " + "; ".join(f"{r} ({n}×)" for r, n in reasons.most_common(8))
        fallback = bool(reasons) and self.providers[0].name == WEBGPU
        (self.log.warning if fallback else self.log.info)(f"placement: {text}")

    def _choose(self, asked: list[Provider] | None) -> list[Provider]:
        """Opens the device, except where the CPU comes first: it can run everything."""
        wanted = asked or [Provider(WEBGPU, {}), Provider(CPU, {})]
        names = [p.name for p in wanted]
        if WEBGPU not in names or names[0] == CPU or self.compile_only:
            return wanted
        try:
            options = wanted[names.index(WEBGPU)].options
            self._device_options = {k: v for k, v in options.items() if k in DEVICE_OPTIONS}
            self._tuning_options = {k: v for k, v in options.items() if k not in DEVICE_OPTIONS}
            self.device = devices.open_device(self._device_options)
        except NoAdapter as e:
            if CPU not in names:
                raise
            self._no_device = e
            return [p for p in wanted if p.name == CPU]
        return wanted

    def _load_plan(self, source: Any) -> Loaded:
        plan = planfile.load(source)
        steps = plan.host_steps
        if len(steps) < len(plan.steps) and self._asked and WEBGPU not in [p.name for p in self._asked]:
            raise PlacementError(f"the plan's kernels need {WEBGPU}; add it to the providers, or load the .onnx")
        if len(steps) < len(plan.steps) and isinstance(self.device, NullDevice) and not self.compile_only:
            self.device = self._device_of_plan()
        self._tell_of_no_device()
        if steps and (self.strict or CPU not in [p.name for p in self.providers]):
            names = ", ".join(f"{p.op} {p.node!r}" for p in plan.placement if p.how == "host")
            raise PlacementError(
                f"the plan has {counted(len(steps), 'node')} for the CPU, which the session forbids: {names}"
            )
        return signature.of_plan(plan), plan, None

    def _device_of_plan(self) -> AnyDevice:
        try:
            if self._no_device is not None:
                raise self._no_device
            return devices.open_device({})
        except NoAdapter as e:
            raise NoAdapter(
                f"the plan's kernels need a WebGPU device: {e.what}; without one, load the .onnx, which the CPU can run"
            ) from e

    def _tell_of_no_device(self) -> None:
        if self._no_device is not None:
            tell = self.log.warning if self._asked else self.log.info
            tell(f"{self._no_device.what}; everything runs on the CPU")

    def _load_model(self, source: Any) -> Loaded:
        from webrt.compiler import frontend
        from webrt.compiler.compile import compile_model

        self._tell_of_no_device()
        limits = self.options.seconds("session.compile_timeout"), self.options.count("session.compile_memory")
        model = frontend.read_model(source, None, Bounds.of(*limits))
        path = self.options.optimized_model_filepath or None
        one_plan = self.compile_only or self.options.entry("session.plan_filepath")
        data = self.options.entry("session.optimized_model_external_initializers_file_name")
        options = self._compile_options(optimized_path=path, optimized_data=data, assumed=None if one_plan else {})
        try:
            plan = compile_model(model, options)
        except NotConstant as e:
            if not (e.roots or e.conditions) or self.compile_only:
                raise
            self._model = model
            return signature.of_graph(frontend.load(model)), None, e
        path = self.options.entry("session.plan_filepath")
        if path:
            planfile.save(plan, Path(path))
        found = signature.of_plan(plan)
        if any(not a.type for a in [*found.inputs, *found.outputs]):
            found = signature.of_graph(frontend.load(model))
        if found.overridable or any(i.elements for i in plan.inputs):
            self._model = model
        return found, plan, None

    def _level(self) -> Any:
        asked = self.options.graph_optimization_level
        try:
            return _LEVELS[int(asked)]
        except (KeyError, TypeError, ValueError):
            levels = ", ".join(v.name for v in GraphOptimizationLevel)
            raise InputError(f"graph_optimization_level {asked!r} is none of {levels}") from None

    def _compile_options(self, **more: Any) -> CompileOptions:
        from webrt.compiler.compile import CompileOptions

        names = [p.name for p in self.providers]
        providers = ("cpu",) if names[0] == CPU else tuple({WEBGPU: "webgpu", CPU: "cpu"}[n] for n in names)
        if not isinstance(self.device, NullDevice):
            more["target"] = self.device.target
        progress = self.options.progress
        if progress is not None:
            more["progress"] = lambda stage, done, total: progress("compile", done, total)
        return CompileOptions(
            level=self._level(),
            providers=providers,
            free_dims=self.options.free_dimensions,
            denotations=self.options.free_denotations,
            strict=self.strict,
            seconds=self.options.seconds("session.compile_timeout"),
            memory=self.options.count("session.compile_memory"),
            places=self.options.table("session.node_providers"),
            disabled=tuple(filter(None, map(str.strip, self.options.entry(DISABLED_PASSES).split(";")))),
            **more,
        )


def is_plan(source: Any) -> bool:
    """Whether a path or bytes are a .webrt file: by its name, or by its header, which an ONNX model cannot have."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[8:9]) == b"{"
    if not isinstance(source, (str, os.PathLike)):
        return False
    if Path(source).suffix == ".webrt":
        return True
    if not Path(source).is_file():  # a pipe would be waited for
        return False
    try:
        with open(source, "rb") as f:
            return f.read(9)[8:9] == b"{"
    except (OSError, ValueError):
        return False
