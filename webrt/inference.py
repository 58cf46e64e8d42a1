"""`InferenceSession`: joins the compile half, a device and the CPU provider under the names of ONNX Runtime's API."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from webrt import known
from webrt.dims import LIMIT
from webrt.errors import DeviceError, DeviceFreeError, DeviceLost, InputError, NoAdapter, NotConstant
from webrt.files import atomic_file
from webrt.loading import Loader, Source
from webrt.options import CPU, WEBGPU, ProviderEntry, RunOptions, SessionOptions, parse_providers
from webrt.plan import PlacedNode, Plan
from webrt.runtime import devices
from webrt.runtime.control import Control
from webrt.runtime.devices import AnyDevice, AnySession, adapter_name
from webrt.runtime.profile import Recorded, trace_text
from webrt.runtime.session import RunStats, Session
from webrt.runtime.tensor import Tensor, host_value, integers
from webrt.runtime.tuning import Tuning
from webrt.signature import ModelMetadata, NodeArg
from webrt.variants import Variants

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")


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
        if not isinstance(sess_options, SessionOptions | None):
            raise InputError(f"sess_options is a SessionOptions; a {type(sess_options).__name__} was given")
        self._options = sess_options or SessionOptions()
        self._tasks: set[asyncio.Future[None]] = set()
        self._auto_recover = self._options.is_set("session.auto_recover")
        self._options.seconds("session.run_timeout")
        self._recovering = threading.Lock()
        self._closed = False
        self._loader = Loader(self._options, parse_providers(providers, provider_options))
        self._signature, self._plan, unknown = self._loader.load(source)
        self._variants = Variants(self._signature.dtypes, self._loader.compile_known, self._loader.open, unknown)
        self._general: AnySession | None = None
        self._ran: AnySession | None = None
        if self._plan is not None and not self._loader.compile_only:
            self._general = self._loader.open(self._plan)
        plan = self._plan if self._general is not None else None
        clamped = plan.meta.get("clamped", ()) if plan is not None else ()
        fed = plan.inputs if plan is not None else ()
        self._structural = frozenset(i.name for i in fed if i.elements and i.name not in clamped)

    @classmethod
    async def create(
        cls,
        source: Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> InferenceSession:
        """A session, made without blocking the event loop; in a page it is there when all is loaded."""
        if not devices.IN_BROWSER:
            return await _in_thread(lambda: cls(source, sess_options, providers, provider_options))
        await devices.prepare()
        made = cls(source, sess_options, providers, provider_options)
        if made._general is not None and not isinstance(made._general, Session):
            await made._general.ready()
        return made

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
        *,
        output_location: str | Mapping[str, str] = "cpu",
    ) -> list[Any]:
        """The outputs of these names (None: all), in order.

        `input_feed` maps input names to numpy arrays, device Tensors, lists (sequences) or dicts (maps); initializers
        of `get_overridable_initializers()` may be fed too. `output_location` is "cpu" or "device" (a `webrt.Tensor`),
        for all or by name. `run_options.terminate` ends the run. Raises InputError for feeds that do not fit,
        RunTerminated, OutOfMemory and DeviceLost: see `recover`.
        """
        _check_request(output_names, output_location)
        control = self._control(run_options)
        try:
            with self._session_for(input_feed) as (session, feeds):
                return session.run(output_names, feeds, output_location, control)
        except DeviceLost:
            if not self._auto_recover or control.over:
                raise
        self.recover()
        with self._session_for(input_feed) as (session, feeds):
            return session.run(output_names, feeds, output_location, self._control(run_options))

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
        *,
        output_location: str | Mapping[str, str] = "cpu",
    ) -> list[Any]:
        """`run` without blocking the event loop."""
        if not devices.IN_BROWSER:
            run = functools.partial(self.run, output_names, input_feed, run_options, output_location=output_location)
            return await _in_thread(run)
        control = self._control(run_options)
        try:
            return await self._arun(output_names, input_feed, output_location, control)
        except DeviceLost:
            if not self._auto_recover or control.over:
                raise
        await self.arecover()
        return await self._arun(output_names, input_feed, output_location, self._control(run_options))

    def recover(self) -> None:
        """After a DeviceLost: another device, with the constants and pipelines of this session on it. It does nothing
        where the device is there. Sessions that shared the lost device share the new one as each of them recovers.

        A plan's file is read again for its constants. Raises PlanError where it is gone or was changed, NoAdapter where
        there is no other device, and DeviceError after `close`.
        """
        with self._recovering:
            self._check_open()
            self._loader.reopen_device()
            if self._general is not None and self._general.device.lost:
                lost, self._general = self._general, self._loader.open(self._general.plan)
                lost.close()

    async def arecover(self) -> None:
        """`recover` without blocking the event loop."""
        if not devices.IN_BROWSER:
            await _in_thread(self.recover)
            return
        await devices.prepare()
        self.recover()
        if self._general is not None and not isinstance(self._general, Session):
            await self._general.ready()

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """`run` elsewhere, which then calls `callback(outputs, user_data, error)`; `error` is "" if all went well."""
        import asyncio

        async def work() -> None:
            try:
                outputs, error = await self.arun(output_names, input_feed, run_options), ""
            except Exception as e:  # whatever it is, the caller waits for the callback
                outputs, error = [], str(e) or type(e).__name__
            callback(outputs, user_data, error)

        if devices.IN_BROWSER:
            task = asyncio.ensure_future(work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            threading.Thread(target=lambda: asyncio.run(work()), name="webrt-run").start()

    def get_inputs(self) -> list[NodeArg]:
        """What has to be fed."""
        return list(self._signature.inputs)

    @property
    def fixed_inputs(self) -> frozenset[str]:
        """Inputs whose elements were fixed when the plan was compiled: they may be left out of a run."""
        return known.names(self._plan.meta) if self._plan is not None else frozenset()

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
        return [p.name for p in self._loader.providers]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """The options of each provider in use."""
        return {p.name: dict(p.options) for p in self._loader.providers}

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
            what = f"the elements of {', '.join(sorted(roots))}" if roots else "the sizes of the inputs"
            raise NotConstant(f"the plan depends on {what}; run first", roots=roots)
        return self._plan

    @property
    def device(self) -> AnyDevice:
        """The device, for `Tensor.from_numpy(array, session.device)`. A session on the CPU has a NullDevice."""
        return self._loader.device

    @property
    def tuning(self) -> Tuning | None:
        """What the session knows of the fastest kernels; None where no option asked for that."""
        return self._loader.tuning

    @property
    def last_run(self) -> RunStats:
        """What the last run did, in numbers."""
        session = self._ran or self._general
        return session.last_run if session else RunStats()

    def start_profiling(self) -> None:
        """Times runs step by step from now on; what was timed before is forgotten."""
        self._set_profile([])

    @property
    def profiled_runs(self) -> list[Recorded]:
        """The runs that were timed since profiling began."""
        return list(self._loader.profile or ())

    def end_profiling(self) -> str:
        """Writes the timed runs as a Chrome trace (chrome://tracing, ui.perfetto.dev) and returns the file's name; ""
        where profiling is not on. Runs are not timed any more. Raises WebrtError for a file that cannot be written."""
        if self._loader.profile is None:
            return ""
        text = trace_text(self._loader.profile, adapter_name(self.device))
        name = f"{self._options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        with atomic_file(Path(name)) as file:
            file.write(text.encode())
        self._set_profile(None)
        return name

    def _set_profile(self, profile: list[Recorded] | None) -> None:
        self._loader.profile = profile
        for session in [*self._variants.sessions, *([self._general] if self._general else [])]:
            session.profile = profile

    def close(self) -> None:
        """Frees the session's device memory; may be called again. Tensors that runs handed out live on. A later run
        raises DeviceError."""
        self._closed = True
        self._variants.close()
        if self._general is not None:
            self._general.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _session_for(self, input_feed: Mapping[str, Any]) -> Iterator[tuple[AnySession, Mapping[str, Any]]]:
        """The session that runs these feeds, and what it takes of them."""
        self._check_open()
        if self._loader.compile_only:
            raise DeviceFreeError('the session only compiles (session.compile_only = "1"); make another one to run')
        if not isinstance(input_feed, Mapping):
            raise InputError(f"input_feed maps names to values; a {type(input_feed).__name__} was given")
        overridden = {a.name for a in self._signature.overridable} & set(input_feed)
        overridden |= self._beyond_sizes(input_feed)
        if self._general is not None and not overridden:
            self._ran = self._general
            yield self._general, input_feed
            return
        with self._variants.lock:
            session = self._variants.session(input_feed, overridden)
            self._ran, self._plan = session, session.plan
            fed = {a.name for a in self._signature.inputs}
            yield session, {k: v for k, v in input_feed.items() if k in fed or k not in overridden}

    async def _arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        output_location: str | Mapping[str, str],
        control: Control,
    ) -> list[Any]:
        """A run in a page."""
        with self._session_for(input_feed) as (session, feeds):
            if isinstance(session, Session):
                return session.run(output_names, feeds, output_location, control)
            return await session.arun(output_names, feeds, output_location, control)

    def _control(self, run_options: RunOptions | None) -> Control:
        return Control(
            lambda: bool(getattr(run_options, "terminate", False)), self._options.seconds("session.run_timeout")
        )

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("the session was closed; make a new one")

    def _beyond_sizes(self, feeds: Mapping[str, Any]) -> set[str]:
        """Inputs whose elements are sizes of the plan, with one that no size can be: they are compiled for by value.
        Bounds of slices are none of them: the plan takes those that are far out."""
        named = self._structural & set(feeds)
        arrays = {n: host_value(n, feeds[n], self._signature.dtypes[n]) for n in named if not _on_device(feeds[n])}
        return {n for n, array in arrays.items() if any(abs(x) >= LIMIT for x in integers(array))}


async def _in_thread(work: Callable[[], R]) -> R:
    """What `work` returns, without blocking the event loop. asyncio takes a fifth of the time to import webrt: only who
    has a loop imports it."""
    import asyncio

    return await asyncio.to_thread(work)


def _check_request(output_names: object, output_location: object) -> None:
    if output_names is not None and (isinstance(output_names, str) or not isinstance(output_names, Sequence)):
        raise InputError(f"output_names is None or a list of names; {output_names!r} was given")
    if not isinstance(output_location, str | Mapping):
        raise InputError(f'output_location is "cpu", "device" or a dict by name; {output_location!r} was given')


def _on_device(value: object) -> bool:
    return isinstance(value, Tensor)


def get_available_providers() -> list[str]:
    """The providers that work here, in the default order."""
    try:
        devices.open_device({})
    except NoAdapter:
        return [CPU]
    return [WEBGPU, CPU]
