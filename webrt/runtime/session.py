"""A plan on a device: constants resident, runs repeated."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from webrt import validate
from webrt.errors import DeviceError, DeviceLost
from webrt.plan import Plan
from webrt.runtime.control import Control
from webrt.runtime.device import Device, HostProvider
from webrt.runtime.executor import Run
from webrt.runtime.log import Log
from webrt.runtime.profile import Recorded, Recorder
from webrt.runtime.queue import Queue
from webrt.runtime.scope import Scope
from webrt.runtime.stats import RunStats
from webrt.runtime.tuning import Tuning, of_plan

__all__ = ["RunStats", "Session"]


class Session:
    """Runs a plan. May be used from several threads, one run at a time; the device may be shared. While `profile` is a
    list, each run is timed step by step and added to it. `tuning` says which alternatives are the fastest, beside what
    the plan carries for this adapter; or measures them. `log` takes the warnings, by default webrt's logger.

    Raises PlanError for a plan that breaks a rule of validate.py, TargetError where the device does not meet the plan,
    PlacementError where the plan has host steps and no `host` provider is given, KernelError, OutOfMemory, DeviceLost.
    """

    def __init__(
        self, plan: Plan, device: Device, host: HostProvider | None = None, tuning: Tuning | None = None,
        log: Log | None = None,
    ) -> None:  # fmt: skip
        validate.validate(plan)
        self.plan, self.device = plan, device
        log = log or Log()
        self.scope = Scope(plan, device, host, tuning=of_plan(plan, device, tuning, log), log=log)
        self.last_run = RunStats()
        self.profile: list[Recorded] | None = None
        self.control = Control()
        self._closed = False
        self.lock = threading.RLock()
        self.scope.open()

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        output_location: str | Mapping[str, str] = "cpu",
        control: Control | None = None,
    ) -> list[Any]:
        """Runs once. `feeds` maps input names to arrays, device Tensors, lists or dicts; `output_location` is "cpu" or
        "device", for all or by name; `control` may end it. Returns one value per name (all outputs where None).

        Raises InputError for feeds that do not fit, TargetError where these sizes are beyond the device, RunTerminated
        where `control` ended the run, and DeviceLost where the device is gone or was given up.
        """
        with self.lock:
            if self.device.lost:
                name = self.device.target.name
                raise DeviceLost(f"the device {name!r} was closed or lost; recover the session, or make a new one")
            if self._closed:
                raise DeviceError("the session was closed; make a new one")
            self.control = control or Control()
            before = self.device.counters
            created, pipelines = before.created, before.pipelines
            self.last_run = RunStats()
            try:
                return self._go(output_names, output_location, feeds)
            finally:
                self.last_run.buffers = self.device.counters.created - created
                self.last_run.pipelines = self.device.counters.pipelines - pipelines

    def _go(
        self, output_names: Sequence[str] | None, location: str | Mapping[str, str], feeds: Mapping[str, Any]
    ) -> list[Any]:
        recorder = Recorder(self.plan, self.device) if self.profile is not None else None
        run = Run(self.scope, Queue(self.device, self.last_run, self.control, recorder), output_names, location)
        if self.profile is None or recorder is None:
            return run.go(feeds)
        outputs = run.go(feeds)
        self.profile.append(recorder.done(run.sizes.values, run.frame.kernel_of))
        return outputs

    def close(self) -> None:
        """Frees the session's device memory; may be called again. Tensors that runs handed out live on."""
        with self.lock:
            self._closed = True
            self.scope.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        scope = getattr(self, "scope", None)
        if scope is not None and not self._closed:
            scope.close()
