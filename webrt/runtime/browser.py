"""Sessions under Pyodide: player.js runs the plan; the border is crossed once per run, and once per host segment."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from js import URL, Blob, Object
from pyodide.code import run_js
from pyodide.ffi import JsException, can_run_sync, create_proxy, run_sync, to_js

from webrt import errors, planfile, resources
from webrt.dtypes import BY_NAME
from webrt.errors import DeviceError, NoAdapter, WebrtError
from webrt.plan import Bytes, Plan, ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.control import Control
from webrt.runtime.device import Buffer, Counters, HostProvider, Range, padded
from webrt.runtime.feeds import choose_locations, choose_outputs, take
from webrt.runtime.host_steps import HostSteps
from webrt.runtime.log import Log
from webrt.runtime.profile import Recorded, of_player
from webrt.runtime.session import RunStats
from webrt.runtime.sizes import Sizes
from webrt.runtime.tensor import Tensor
from webrt.runtime.tuning import Tuning
from webrt.runtime.wire import Wire, from_wire, to_wire
from webrt.target import Target

Progress: TypeAlias = Callable[[str, int, int], None]

_NO_JSPI = (
    "this browser cannot wait inside a call (JSPI); use `await InferenceSession.create(…)` and `await session.arun(…)`"
)


@dataclass(eq=False)
class BrowserBuffer:
    """A GPUBuffer; `release` frees it."""

    handle: Any
    nbytes: int
    label: str
    release: Callable[[], None]


class BrowserDevice:
    """The browser's device: memory for tensors. Sessions on it are player.js's."""

    def __init__(self, player: Any, opened: Any) -> None:
        self.player, self.opened = player, opened
        self.target = Target.from_json(player.describe(opened))
        self.adapter: dict[str, str] = json.loads(player.adapter(opened))

    @property
    def counters(self) -> Counters:
        """Of tensors that Python made; each session has counters of its own."""
        return _counters(self.opened.gpu.counters)

    @property
    def lost(self) -> bool:
        """Whether the device is gone."""
        try:
            self.opened.gpu.alive()
        except JsException:
            return True
        return False

    def alloc(self, nbytes: int, label: str, *, uniform: bool = False) -> BrowserBuffer:
        gpu = self.opened.gpu
        with raising():
            gpu.alive()
            made = gpu.alloc(nbytes, label)
        return BrowserBuffer(made.handle, padded(nbytes), label, lambda: gpu.free(made))

    def free(self, buffer: Buffer) -> None:
        if isinstance(buffer, BrowserBuffer):
            buffer.release()

    def write(self, buffer: Buffer, offset: int, data: Bytes) -> None:
        with raising():
            self.player.write(self.opened, _handle(buffer), offset, to_js(memoryview(data)))

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Raises DeviceError where the browser cannot wait inside a call."""
        wanted = [[_handle(r.buffer), r.offset, r.nbytes] for r in ranges]
        with raising():
            return list(_wait(self.player.read(self.opened, to_js(wanted))).to_py())

    def close(self) -> None:
        self.opened.device.destroy()


class BrowserSession:
    """Runs a plan in the browser: the surface of runtime/session.py's Session.

    Where the browser can wait inside a call (JSPI) a session is made when all is loaded; elsewhere `ready` waits for
    that. While `profile` is a list, each run is timed step by step and added to it. Raises TargetError, PlacementError,
    KernelError, OutOfMemory and DeviceLost.
    """

    def __init__(
        self, plan: Plan, device: BrowserDevice, host: HostProvider | None = None, progress: Progress | None = None,
        tuning: Tuning | None = None, log: Log | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.device = plan, device
        self.last_run = RunStats()
        self.profile: list[Recorded] | None = None
        self._host = HostSteps(plan, host)
        self._closed = False
        self._turn = asyncio.Lock()
        self._before = Counters()
        self._failure: BaseException | None = None
        told = (log or Log()).warning
        self._proxies = [create_proxy(f) for f in (self._run_host, told, progress) if f is not None]
        call = self._proxies[0] if plan.host_steps else None
        report = self._proxies[2] if progress else None
        known = json.dumps({"table": tuning.table.to_json(), "budget": tuning.seconds}) if tuning else ""
        data, warn = to_js(memoryview(planfile.dump(plan))), self._proxies[1]
        self._loading = device.player.load(data, device.opened, call, report, known, warn)
        self._loaded: Any = None
        if can_run_sync():
            run_sync(self.ready())

    async def ready(self) -> None:
        """Waits until constants are on the device and pipelines are made."""
        if self._loaded is not None:
            return
        try:
            with raising():
                self._loaded = await self._loading
                self._before = _counters(self._loaded.session.counters)
        except WebrtError:
            self.close()
            raise

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        output_location: str | Mapping[str, str] = "cpu",
        control: Control | None = None,
    ) -> list[Any]:
        """As Session.run; waits inside the call. Raises DeviceError where the browser cannot do that."""
        done: list[Any] = _wait(self.arun(output_names, feeds, output_location, control))
        return done

    async def arun(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        output_location: str | Mapping[str, str] = "cpu",
        control: Control | None = None,
    ) -> list[Any]:
        """As Session.run, without blocking."""
        async with self._turn:
            if self._closed:
                raise DeviceError("the session was closed; make a new one")
            outputs = choose_outputs(self.plan, output_names)
            on_device = choose_locations(self.plan, outputs, output_location)
            tensors = self._take(feeds)
            await self.ready()
            self._time()
            where = {o.name: "gpu" for o, d in zip(outputs, on_device) if d}
            names = to_js([o.name for o in outputs])
            given = to_js(where, dict_converter=Object.fromEntries)
            made = await self._go(to_js(tensors), names, given, control or Control())
            if self.profile is not None:
                runs = json.loads(self.device.player.profiled(self._loaded))
                self.profile += [of_player(self.plan, run, self._host.spans) for run in runs]
            found = {t[0]: t for t in made}
            return [self._output(o, found[o.name]) for o in outputs]

    def close(self) -> None:
        """Frees the session's device memory; may be called again. Tensors that runs handed out live on."""
        if self._closed:
            return
        self._closed = True
        if self._loaded is not None:
            self._loaded.session.release()
        for proxy in self._proxies:
            proxy.destroy()

    def __enter__(self) -> BrowserSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _time(self) -> None:
        """Has the player time runs where a profile is on, and not where none is."""
        if self._host.timed != (self.profile is not None):
            self._host.timed = self.profile is not None
            self.device.player.profile(self._loaded, self._host.timed)

    def _take(self, feeds: Mapping[str, Any]) -> list[Wire]:
        taken = take(self.plan, self.device, feeds, Sizes(self.plan))
        self._host.begin(taken.host)
        out: list[Wire] = []
        for info in self.plan.inputs:
            if info.name in taken.tensors:
                tensor = taken.tensors[info.name]
                out.append([info.name, info.dtype, list(tensor.shape), _handle(tensor.buffer)])
            elif info.name in taken.host:
                out.append(to_wire(info, taken.host[info.name]))
        return out

    async def _go(self, tensors: Any, names: Any, where: Any, control: Control) -> list[Wire]:
        self._failure = None
        stopped = create_proxy(control.stopped)
        try:
            with raising():
                player = self.device.player
                answer = await player.run(self._loaded, tensors, names, where, stopped, control.timeout)
        except Exception:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            stopped.destroy()
        made, counters = answer
        self._count(_counters(counters))
        return list(made.to_py())

    def _run_host(self, steps: Any, fetched: Any) -> Any:
        """Called by player.js for a host segment."""
        try:
            values = self._host.infos
            given = {t[0]: from_wire(t, values[t[0]]) for t in fetched.to_py()}
            made = self._host.run(list(steps.to_py()), given)
            return to_js([to_wire(values[n], v) for n, v in made.items()])
        except BaseException as e:
            self._failure = e
            raise

    def _output(self, info: ValueInfo, tensor: Wire) -> Any:
        _, dtype, dims, data = tensor
        if data is None:
            return T.copy(self._host.values[info.name])
        if hasattr(data, "dispose"):
            nbytes = padded(BY_NAME[dtype].nbytes(math.prod(dims)))
            buffer = BrowserBuffer(data.buffer, nbytes, f"output {info.name!r}", data.dispose)
            return Tensor(self.device, buffer, BY_NAME[dtype], dims)
        return from_wire(tensor, info)

    def _count(self, now: Counters) -> None:
        before, self._before = self._before, now
        self.last_run = RunStats(
            dispatches=now.dispatches - before.dispatches,
            copies=now.copies - before.copies,
            host_nodes=self._host.ran,
            up=now.written - before.written,
            down=now.read - before.read,
            buffers=now.created - before.created,
            pipelines=now.pipelines - before.pipelines,
            submits=now.submits - before.submits,
        )


_device: list[BrowserDevice | NoAdapter] = []


async def prepare() -> None:
    """Opens the page's device, so that `open_device` need not wait."""
    if _device and isinstance(_device[0], BrowserDevice) and not _device[0].lost:
        return
    try:
        with raising():
            player = _page_player() or await run_js("(url) => import(url)")(_module_url("player/pyodide.js", {}))
            _device[:] = [BrowserDevice(player, await player.open())]
    except NoAdapter as e:
        _device[:] = [e]


def _page_player() -> Any:
    """The player that web/python.js gave, which may have begun already; None without it."""
    try:
        return importlib.import_module("webrt_player")
    except ModuleNotFoundError:
        return None


def open_device(options: Mapping[str, Any] | None = None) -> BrowserDevice:
    """The page's device, one for all sessions: the browser chooses it, whatever `options` of the native devices say.

    Raises NoAdapter, and DeviceError where the browser cannot wait inside a call and `prepare` was not awaited before.
    """
    if not _device or (isinstance(_device[0], BrowserDevice) and _device[0].lost):
        _wait(prepare())
    found = _device[0]
    if isinstance(found, NoAdapter):
        raise found
    return found


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Errors of player.js as webrt's of the same name; the browser's own as DeviceError."""
    try:
        yield
    except JsException as e:
        kind = getattr(errors, str(e.name), None)
        if isinstance(kind, type) and issubclass(kind, WebrtError):
            raise kind(str(e.what), node=str(e.node), op=str(e.op)) from None
        raise DeviceError(f"the browser refused it: {e.name}: {e.message}") from e


def _wait(awaitable: Any) -> Any:
    if not can_run_sync():
        if asyncio.iscoroutine(awaitable):
            awaitable.close()
        raise DeviceError(_NO_JSPI)
    return run_sync(awaitable)


def _module_url(name: str, made: dict[str, str]) -> str:
    """A URL of a module of web/ as it is installed here, whose imports are such URLs too."""
    if name not in made:
        folder = posixpath.dirname(name)

        def link(found: re.Match[str]) -> str:
            return f'from "{_module_url(posixpath.normpath(posixpath.join(folder, found[1])), made)}"'

        text = (resources.web_dir() / name).read_text(encoding="utf-8")
        text = re.sub(r'from "(\.[^"]+)"', link, text)
        options = to_js({"type": "text/javascript"}, dict_converter=Object.fromEntries)
        made[name] = str(URL.createObjectURL(Blob.new(to_js([text]), options)))
    return made[name]


def _handle(buffer: Buffer) -> Any:
    if not isinstance(buffer, BrowserBuffer):
        raise DeviceError("the buffer is another device's")
    return buffer.handle


def _counters(counted: Any) -> Counters:
    plain = counted.to_py()
    return Counters(**{f.name: int(plain[f.name]) for f in fields(Counters)})
