"""What a caller gives to a run: checked, converted, and their sizes bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webrt import known
from webrt.dtypes import BY_NAME
from webrt.errors import DeviceLost, InputError, UnsupportedType
from webrt.plan import Plan, ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.device import DeviceMemory
from webrt.runtime.sizes import Sizes, declared
from webrt.runtime.tensor import HostValue, Tensor


@dataclass
class Feeds:
    """Host values and device tensors by input name; `down` bytes were read back for inputs that live on the host."""

    host: dict[str, HostValue] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    down: int = 0


def take(plan: Plan, device: DeviceMemory, given: Mapping[str, Any], sizes: Sizes) -> Feeds:
    """Raises InputError for a feed that is missing, extra, or of another type, shape or fixed value; it names the
    expected ones. Inputs that were fixed when the plan was compiled may be missing."""
    _check_names(plan, given)
    feeds = Feeds()
    for info in plan.inputs:
        if info.name not in given:
            continue
        _take_one(plan, device, info, given[info.name], sizes, feeds)
    return feeds


def choose_outputs(plan: Plan, names: Sequence[str] | None) -> list[ValueInfo]:
    """The outputs of these names, or all. Raises InputError for a name that is none."""
    have = {o.name: o for o in plan.outputs}
    for name in names or ():
        if name not in have:
            raise InputError(f"there is no output {name!r}; the outputs are {', '.join(have)}")
    return list(plan.outputs) if names is None else [have[n] for n in names]


def choose_locations(plan: Plan, outputs: Sequence[ValueInfo], location: str | Mapping[str, str]) -> list[bool]:
    """Whether each output stays on the device. Raises InputError for a name that is no output, and UnsupportedType for
    one that a device cannot hold."""
    out = []
    if not isinstance(location, str):
        choose_outputs(plan, list(location))
    for info in outputs:
        where = location if isinstance(location, str) else location.get(info.name, "cpu")
        if where not in ("cpu", "device"):
            raise InputError(f'output_location is "cpu" or "device", not {where!r}')
        if where == "device" and not (info.dtype in BY_NAME and BY_NAME[info.dtype].on_device):
            raise UnsupportedType(f"output {info.name!r} is {info.dtype or 'no tensor'}, which devices do not hold")
        out.append(where == "device")
    return out


def _take_one(plan: Plan, device: DeviceMemory, info: ValueInfo, value: Any, sizes: Sizes, feeds: Feeds) -> None:
    def refuse(what: str) -> InputError:
        return InputError(f"input {info.name!r}: {what}; expected is {declared(plan, info)}")

    if isinstance(value, Tensor):
        if value.device.lost:
            raise DeviceLost(f"input {info.name!r} was on a device that is lost; feed it from the host again")
        if str(value.dtype) != info.dtype:
            raise refuse(f"it is {value.dtype}")
        if info.place is not None and info.elements == 0:
            if value.device is not device:
                raise refuse("it is a tensor of another device: give its .numpy()")
            feeds.tensors[info.name] = value
            sizes.bind(info, value.shape, refuse)
            return
        feeds.down += value.nbytes
        value = value.numpy()
    array = T.host_value(info.name, value, info.dtype)
    feeds.host[info.name] = array
    bind_host(info, array, sizes, refuse)
    known.refuse_other(plan.meta, info.name, info.dtype, array)


def bind_host(info: ValueInfo, value: HostValue, sizes: Sizes, refuse: Any) -> None:
    """Binds the sizes, and where they are sizes the elements, of a host value."""
    shape = T.shape_of(value)
    if shape is not None:
        sizes.bind(info, shape, refuse)
        if info.elements:
            sizes.bind_elements(info, T.integers(value), refuse)


def _check_names(plan: Plan, given: Mapping[str, Any]) -> None:
    names = [i.name for i in plan.inputs]
    expected = "; ".join(declared(plan, i) for i in plan.inputs) or "none"
    missing = [n for n in names if n not in given and n not in known.names(plan.meta)]
    if missing:
        raise InputError(f"no value for {', '.join(map(repr, missing))}; the inputs are {expected}")
    extra = [n for n in given if n not in names]
    if extra:
        raise InputError(f"{', '.join(map(repr, extra))} is no input; the inputs are {expected}")
