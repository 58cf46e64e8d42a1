"""`InferenceSession`: joins the compile half, a device and the CPU provider under the names of ONNX Runtime's API."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from webrt import plan as P
from webrt import signature
from webrt.errors import DeviceFreeError, InputError, NoAdapter, NotConstant, PlacementError, WebrtError
from webrt.options import CPU, WEBGPU, GraphOptimizationLevel, Provider, ProviderEntry, SessionOptions, parse_providers
from webrt.plan import PlacedNode, Plan
from webrt.runtime import devices
from webrt.runtime.device import HostProvider
from webrt.runtime.devices import AnyDevice, AnySession
from webrt.runtime.null import NullDevice
from webrt.runtime.session import RunStats, Session
from webrt.signature import ModelMetadata, NodeArg, Signature
from webrt.variants import Variants

if TYPE_CHECKING:
    import onnx

    from webrt.compiler.compile import CompileOptions

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"

Loaded: TypeAlias = tuple[Signature, Plan | None, frozenset[str]]
"""Signature, plan, and the inputs whose elements have to be known before there is a plan."""

logger = logging.getLogger("webrt")
_LEVELS: dict[int, Any] = {0: "disabled", 1: "basic", 2: "extended", 99: "all"}


class InferenceSession:
    """A model ready to run.

    `source` is the path or the bytes of an `.onnx` or a `.webrt` file, or a ModelProto. `providers` in order of
    preference, plain or as (name, options); by default WebGPU where an adapter exists, then the CPU.

    Raises ModelError for a model that cannot be compiled, PlanError for a damaged plan, PlacementError where a node
    would run where it must not, NoAdapter where only WebGPU is asked for and there is none, and InputError for options.
    """

    def __init__(
        self,
        source: Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._options = sess_options or SessionOptions()
        self._general: AnySession | None = None
        self._ran: AnySession | None = None
        self._tasks: list[asyncio.Future[None]] = []
        self._model: onnx.ModelProto | None = None
        self._compile_only = self._options.is_set("session.compile_only")
        self._strict = self._options.is_set("session.disable_cpu_ep_fallback")
        self._device: AnyDevice | None = None
        self._host: HostProvider | None = None
        self._providers = self._choose_providers(parse_providers(providers, provider_options))
        loaded = self._load_plan(source) if _is_plan(source) else self._load_model(source)
        self._signature, self._plan, roots = loaded
        self._variants = Variants(self._signature.dtypes, self._compile_known, self._open, roots)
        if self._plan is not None:
            self._report(self._plan)
            if not self._compile_only:
                self._general = self._open(self._plan)

    @classmethod
    async def create(cls, *args: Any, **kwargs: Any) -> InferenceSession:
        """`InferenceSession(…)` without blocking the event loop; in a browser it returns when all is loaded."""
        if sys.platform == "emscripten":
            from webrt.runtime import browser

            await browser.prepare()
            session = cls(*args, **kwargs)
            if isinstance(session._general, browser.BrowserSession):
                await session._general.ready()
            return session
        return await asyncio.to_thread(cls, *args, **kwargs)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: object = None,
        *,
        output_location: str | Mapping[str, str] = "cpu",
    ) -> list[Any]:
        """The outputs of these names (None: all), in order.

        `input_feed` maps input names to numpy arrays, device Tensors, lists (sequences) or dicts (maps); initializers
        of `get_overridable_initializers()` may be fed too. `output_location` is "cpu" or "device" (a `webrt.Tensor`),
        for all or by name. `run_options` is accepted and has no effect. Raises InputError for feeds that do not fit.
        """
        with self._session_for(input_feed) as (session, feeds):
            return session.run(output_names, feeds, output_location)

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        *,
        output_location: str | Mapping[str, str] = "cpu",
    ) -> list[Any]:
        """`run` without blocking the event loop."""
        if not devices.IN_BROWSER:
            return await asyncio.to_thread(self.run, output_names, input_feed, output_location=output_location)
        overridden = self._check(input_feed)
        session, feeds = self._general, input_feed
        if session is None or overridden:
            session, feeds = self._variant(input_feed, overridden)
        self._ran = session
        if isinstance(session, Session):
            return session.run(output_names, feeds, output_location)
        return await session.arun(output_names, feeds, output_location)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any = None,
        run_options: object = None,
    ) -> None:
        """`run` elsewhere, which then calls `callback(outputs, user_data, error)`; `error` is "" if all went well."""

        async def work() -> None:
            try:
                outputs, error = await self.arun(output_names, input_feed), ""
            except WebrtError as e:
                outputs, error = [], str(e)
            callback(outputs, user_data, error)

        if devices.IN_BROWSER:
            self._tasks.append(asyncio.ensure_future(work()))
        else:
            threading.Thread(target=lambda: asyncio.run(work()), name="webrt-run").start()

    def get_inputs(self) -> list[NodeArg]:
        """What has to be fed."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What can be asked for."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that may be fed."""
        return list(self._signature.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Producer, names, version and custom metadata of the model."""
        return self._signature.meta

    def get_providers(self) -> list[str]:
        """The providers in use, in order of preference."""
        return [p.name for p in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """The options of each provider in use."""
        return {p.name: dict(p.options) for p in self._providers}

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_placement(self) -> list[PlacedNode]:
        """Where each node runs, and why. Raises NotConstant where that depends on inputs and nothing has run yet."""
        return list(self.plan.placement)

    @property
    def plan(self) -> Plan:
        """The plan; where it depends on elements of inputs, the last run's. Raises NotConstant before the first."""
        if self._plan is None:
            roots = self._variants.roots
            raise NotConstant(f"the plan depends on the elements of {', '.join(sorted(roots))}; run first", roots=roots)
        return self._plan

    @property
    def device(self) -> AnyDevice:
        """The device, for `Tensor.from_numpy(array, session.device)`. A session on the CPU has a NullDevice."""
        return self._device or NullDevice()

    @property
    def last_run(self) -> RunStats:
        """What the last run did, in numbers."""
        session = self._ran or self._general
        return session.last_run if session else RunStats()

    def close(self) -> None:
        """Frees the session's device memory; may be called again. Tensors that runs handed out live on."""
        self._variants.close()
        if self._general is not None:
            self._general.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _session_for(self, input_feed: Mapping[str, Any]) -> Iterator[tuple[Session, Mapping[str, Any]]]:
        """The session that runs these feeds, and what it takes of them."""
        overridden = self._check(input_feed)
        if self._general is not None and not overridden:
            self._ran = self._general
            return self._general.run(output_names, input_feed, output_location)
        with self._variants.lock:
            session, feeds = self._variant(input_feed, overridden)
            return session.run(output_names, feeds, output_location)

    @classmethod
    async def create(
        cls,
        source: Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> InferenceSession:
        """A session, made without blocking the event loop; the way to make one in a page."""
        if not devices.IN_BROWSER:
            return await asyncio.to_thread(cls, source, sess_options, providers, provider_options)
        await devices.prepare()
        made = cls(source, sess_options, providers, provider_options)
        if made._general is not None and not isinstance(made._general, Session):
            await made._general.ready()
        return made

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        *,
        output_location: str | Mapping[str, str] = "cpu",
    ) -> list[Any]:
        """`run` without blocking the event loop."""
        if sys.platform == "emscripten":
            with self._session_for(input_feed) as (session, feeds):
                run = session.run if isinstance(session, Session) else session.arun
                made = run(output_names, feeds, output_location)
                return made if isinstance(made, list) else await made
        return await asyncio.to_thread(self.run, output_names, input_feed, None, output_location=output_location)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any = None,
        run_options: object = None,
    ) -> None:
        """`run` elsewhere, which then calls `callback(outputs, user_data, error)`; `error` is "" if all went well."""

        def work() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except WebrtError as e:
                outputs, error = [], str(e)
            callback(outputs, user_data, error)

        threading.Thread(target=work, name="webrt-run").start()

    def get_inputs(self) -> list[NodeArg]:
        """What has to be fed."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What can be asked for."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that may be fed."""
        return list(self._signature.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Producer, names, version and custom metadata of the model."""
        return self._signature.meta

    def get_providers(self) -> list[str]:
        """The providers in use, in order of preference."""
        return [p.name for p in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """The options of each provider in use."""
        return {p.name: dict(p.options) for p in self._providers}

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_placement(self) -> list[PlacedNode]:
        """Where each node runs, and why. Raises NotConstant where that depends on inputs and nothing has run yet."""
        return list(self.plan.placement)

    @property
    def plan(self) -> Plan:
        """The plan; where it depends on elements of inputs, the last run's. Raises NotConstant before the first."""
        if self._plan is None:
            roots = self._variants.roots
            raise NotConstant(f"the plan depends on the elements of {', '.join(sorted(roots))}; run first", roots=roots)
        return self._plan

    @property
    def device(self) -> AnyDevice:
        """The device, for `Tensor.from_numpy(array, session.device)`. A session on the CPU has a NullDevice."""
        return self._device or NullDevice()

    @property
    def last_run(self) -> RunStats:
        """What the last run did, in numbers."""
        session = self._ran or self._general
        return session.last_run if session else RunStats()

    def close(self) -> None:
        """Frees the session's device memory; may be called again. Tensors that runs handed out live on."""
        self._variants.close()
        if self._general is not None:
            self._general.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _session_for(self, input_feed: Mapping[str, Any]) -> Iterator[tuple[Session, Mapping[str, Any]]]:
        """The session that runs these feeds, and what it takes of them."""
        if self._compile_only:
            raise DeviceFreeError('the session only compiles (session.compile_only = "1"); make another one to run')
        if not isinstance(input_feed, Mapping):
            raise InputError(f"input_feed maps names to values; a {type(input_feed).__name__} was given")
        overridden = {a.name for a in self._signature.overridable} & set(input_feed)
        if self._general is not None and not overridden:
            self._ran = self._general
            yield self._general, input_feed
            return
        with self._variants.lock:
            session = self._variants.session(input_feed, overridden)
            self._ran, self._plan = session, session.plan
            yield session, {k: v for k, v in input_feed.items() if k not in overridden}

    def _check(self, feeds: Mapping[str, Any]) -> set[str]:
        """Refuses what is no feed; returns the initializers that are fed."""
        if self._compile_only:
            raise DeviceFreeError('the session only compiles (session.compile_only = "1"); make another one to run')
        if not isinstance(feeds, Mapping):
            raise InputError(f"input_feed maps names to values; a {type(feeds).__name__} was given")
        return {a.name for a in self._signature.overridable} & set(feeds)

    def _variant(self, feeds: Mapping[str, Any], overridden: set[str]) -> tuple[AnySession, dict[str, Any]]:
        """The session for these feeds, and those of them that it takes."""
        session = self._variants.session(feeds, overridden)
        self._ran, self._plan = session, session.plan
        return session, {k: v for k, v in feeds.items() if k not in overridden}

    def _choose_providers(self, asked: list[Provider] | None) -> list[Provider]:
        """Opens the device. What the list says first runs everything it can; the CPU can run everything."""
        wanted = asked or [Provider(WEBGPU, {}), Provider(CPU, {})]
        names = [p.name for p in wanted]
        if WEBGPU not in names or names[0] == CPU or self._compile_only:
            return wanted
        webgpu = wanted[names.index(WEBGPU)]
        try:
            self._device = devices.open_device(webgpu.options)
        except NoAdapter as e:
            if CPU not in names:
                raise
            self._log(logging.WARNING if asked else logging.INFO, f"{e.what}; everything runs on the CPU")
            return [p for p in wanted if p.name == CPU]
        return wanted

    def _load_plan(self, source: Any) -> Loaded:
        plan = P.load(source)
        steps = plan.host_steps
        if len(steps) < len(plan.steps) and self._device is None and not self._compile_only:
            self._device = devices.open_device({})
        if steps and (self._strict or CPU not in self.get_providers()):
            names = ", ".join(f"{p.op} {p.node!r}" for p in plan.placement if p.how == "host")
            raise PlacementError(f"the plan has {len(steps)} nodes for the CPU, which the session forbids: {names}")
        return signature.of_plan(plan), plan, frozenset()

    def _load_model(self, source: Any) -> Loaded:
        from webrt.compiler import frontend
        from webrt.compiler.compile import compile_model

        model = frontend.read_model(source)
        options = self._compile_options(optimized_path=self._options.optimized_model_filepath or None)
        try:
            plan = compile_model(model, options)
        except NotConstant as e:
            if not e.roots or self._compile_only:
                raise
            self._model = model
            return signature.of_graph(frontend.load(model)), None, e.roots
        path = self._options.entry("session.plan_filepath")
        if path:
            P.save(plan, Path(path))
        found = signature.of_plan(plan)
        if any(not a.type for a in [*found.inputs, *found.outputs]):
            found = signature.of_graph(frontend.load(model))
        if found.overridable:
            self._model = model
        return found, plan, frozenset()

    def _compile_known(self, known: Mapping[str, Any]) -> Plan:
        from webrt.compiler.compile import compile_model

        if self._model is None:
            raise InputError("a .webrt file cannot be compiled again for other initializers; use the .onnx")
        return compile_model(self._model, self._compile_options(known_inputs=known))

    def _compile_options(self, **more: Any) -> CompileOptions:
        from webrt.compiler.compile import CompileOptions

        names = self.get_providers()
        cpu_only = names[0] == CPU or (self._device is None and not self._compile_only)
        providers = ("cpu",) if cpu_only else tuple({WEBGPU: "webgpu", CPU: "cpu"}[n] for n in names)
        if self._device is not None:
            more["target"] = self._device.target
        level = _LEVELS[GraphOptimizationLevel(self._options.graph_optimization_level)]
        free = self._options.free_dimensions
        return CompileOptions(level=level, providers=providers, free_dims=free, strict=self._strict, **more)

    def _open(self, plan: Plan) -> AnySession:
        """A session on the device."""
        if plan.host_steps and self._host is None:
            from webrt.host import CpuProvider

            self._host = CpuProvider()
        if sys.platform == "emscripten" and uses_device:
            from webrt.runtime import browser

            return browser.BrowserSession(plan, self._device, self._host)
        return devices.open_session(plan, self.device, self._host)

    def _report(self, plan: Plan) -> None:
        """One line on who runs what; a warning where a preferred provider did not take every node."""
        counts = Counter(p.provider for p in plan.placement)
        reasons = Counter(f"{p.op}: {p.reason}" for p in plan.placement if p.how == "host")
        text = ", ".join(f"{n} nodes on {k}" for k, n in counts.items()) or "no nodes"
        text += (
            "; on the CPU because: " + "; ".join(f"{r} ({n}×)" for r, n in reasons.most_common(8)) if reasons else ""
        )
        fallback = bool(reasons) and self.get_providers()[0] == WEBGPU
        self._log(logging.WARNING if fallback else logging.INFO, f"placement: {text}")

    def _log(self, level: int, text: str) -> None:
        if level >= self._options.log_severity_level * 10:
            logger.log(level, text)


def get_available_providers() -> list[str]:
    """The providers that work here, in the default order."""
    try:
        devices.open_device({})
    except NoAdapter:
        return [CPU]
    return [WEBGPU, CPU]


def _is_plan(source: Any) -> bool:
    """Whether a path or bytes are a .webrt file: by its name, or by its header, which an ONNX model cannot have."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[8:9]) == b"{"
    if not isinstance(source, (str, os.PathLike)):
        return False
    if Path(source).suffix == ".webrt":
        return True
    try:
        with open(source, "rb") as f:
            return f.read(9)[8:9] == b"{"
    except OSError:
        return False
