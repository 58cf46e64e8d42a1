"""One run of a session: feeds, the plan's steps, outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from webrt.errors import DeviceError
from webrt.plan import ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.device import Transfer, padded
from webrt.runtime.feeds import choose_locations, choose_outputs, take
from webrt.runtime.queue import Queue
from webrt.runtime.scope import Scope
from webrt.runtime.steps import Steps, dtype_of
from webrt.runtime.tensor import Tensor


class Run(Steps):
    """One run of a plan."""

    def __init__(
        self, scope: Scope, queue: Queue, names: Sequence[str] | None, location: str | Mapping[str, str]
    ) -> None:
        super().__init__(scope, queue)
        self.outputs = choose_outputs(self.plan, names)
        self.on_device = choose_locations(self.plan, self.outputs, location)

    def go(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The asked-for outputs, in order. What the device refuses is told with its node."""
        try:
            return self._go(feeds)
        except DeviceError as e:
            node = self.plan.steps[e.step].node if e.step >= 0 else -1
            if 0 <= node < len(self.plan.placement):
                e.at(node=self.plan.placement[node].node, op=self.plan.placement[node].op)
            raise

    def _go(self, feeds: Mapping[str, Any]) -> list[Any]:
        taken = take(self.plan, self.scope.device, feeds, self.sizes)
        self.host, self.stats.down = taken.host, taken.down
        self.settle()
        self._stand_in(taken.tensors)
        self.memory.ensure(self.needs)
        for info in self.plan.inputs:
            if info.name in self.host:
                self.upload(info, self.host[info.name])
        self._place_tensors(taken.tensors)
        self.run()
        return self._collect()

    def _stand_in(self, tensors: Mapping[str, Tensor]) -> None:
        """Device tensors stand in for their input's slot, until another tensor has it."""
        for name, value in tensors.items():
            slot = self.scope.replaceable.get(name)
            if slot is not None and value.buffer.nbytes >= padded(value.nbytes):
                self.external[slot] = value.buffer

    def _place_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The other device tensors are copied to their input's slot."""
        infos = {i.name: i for i in self.plan.inputs}
        for name, value in tensors.items():
            place = infos[name].place
            if place is not None and place[1] not in self.external and value.nbytes:
                target = self.memory.range(place)
                self.queue.add([Transfer(value.buffer, 0, target.buffer, target.offset, padded(value.nbytes))])
                self.stats.copies += 1

    def _collect(self) -> list[Any]:
        """Reads outputs in the last submit, or copies them into tensors of their own."""
        out: list[Any] = []
        try:
            self._gather(out)
        except BaseException:
            for made in out:
                if isinstance(made, Tensor):
                    made.close()
            self.scope.handed_out.drop()
            raise
        return out

    def _gather(self, out: list[Any]) -> None:
        reads: list[tuple[int, ValueInfo]] = []
        for at, (info, on_device) in enumerate(zip(self.outputs, self.on_device)):
            if self.known(info):
                value = self.host[info.name]
                out.append(Tensor.from_numpy(value, self.scope.device) if on_device else T.copy(value))
            elif on_device:
                out.append(self._hand_out(info))
            else:
                out.append(None)
                reads.append((at, info))
        data = self.queue.submit([self.range(info) for _, info in reads])
        for (at, info), view in zip(reads, data):
            out[at] = T.from_bytes(view, dtype_of(info), self.sizes.shape(info))

    def _hand_out(self, info: ValueInfo) -> Tensor:
        dtype, shape, kept = dtype_of(info), self.sizes.shape(info), self.scope.handed_out
        buffer = kept.take(dtype.nbytes(math.prod(shape)))
        made = Tensor(self.scope.device, buffer, dtype, shape, kept.give)
        if made.nbytes:
            source = self.range(info)
            self.queue.add([Transfer(source.buffer, source.offset, made.buffer, 0, padded(made.nbytes))])
            self.stats.copies += 1
        return made
