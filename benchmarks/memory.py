"""Peak device bytes of models against the least that would do, as JSON.

The least is constants and the tensors that are needed at one time (an output that replaces an operand counts once).
The peak is what a device holds for a session after two runs, without parameters and staging: constants, slots,
textures. `in_buffers` is the same ratio where no operand is read through a texture, as on every adapter that is not a
software one. Sizes are those of the model's sample.

python -m benchmarks.memory                     the public models of models.toml
python -m benchmarks.memory --models DIR        every DIR/NAME.onnx with DIR/NAME.npz beside it
python -m benchmarks.memory --only NAME         one of them
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.models import Model, add_arguments, chosen, print_ratios
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import NotConstant
from webrt.host import CpuProvider
from webrt.inference import InferenceSession
from webrt.plan import Plan
from webrt.runtime.device import padded
from webrt.runtime.footprint import footprint
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session


def fixed_plan(model: Model, device: NativeDevice) -> Plan:
    """The plan for the sizes of the model's sample; inputs whose elements decide shapes are known."""
    sizes = sizes_of(model)
    try:
        return compile_model(model.path, CompileOptions(target=device.target, free_dims=sizes))
    except NotConstant as error:
        known = {name: model.feeds[name] for name in error.roots}
        return compile_model(model.path, CompileOptions(target=device.target, free_dims=sizes, known_inputs=known))


def sizes_of(model: Model) -> dict[str, int]:
    """The free dims of the model's inputs as its sample has them; one without a name is called INPUT.AXIS."""
    with InferenceSession(str(model.path)) as session:
        return {
            d or f"{i.name}.{axis}": size
            for i in session.get_inputs()
            for axis, (d, size) in enumerate(zip(i.shape, np.shape(model.feeds[i.name]), strict=True))
            if not isinstance(d, int)
        }


def measure(model: Model) -> dict[str, Any]:
    """One model's row; the ratio is None where sizes are still free."""
    device = NativeDevice()
    plan = fixed_plan(model, device)
    known = {v.name for v in plan.inputs}
    feeds = {name: a for name, a in model.feeds.items() if name in known}
    with Session(plan, device, CpuProvider()) as session:
        for _ in range(2):
            session.run(None, feeds)
        device._staging.drop()
        peak = device.counters.bytes - padded(plan.params_size)
    constants, live = sum(c.nbytes for c in plan.constants), plan.meta["live_bytes"]
    row: dict[str, Any] = {"model": model.name, "constants": constants, "peak": peak, "lower_bound": None}
    row |= {"ratio": None, "in_buffers": None}
    held = footprint(plan, device.target)
    elsewhere = footprint(plan, replace(device.target, kind="gpu", architecture=""))
    if live is None or held is None or elsewhere is None:
        return row
    least = constants + live
    row |= {"slots": held.slots, "textures": held.textures, "predicted": held.total, "lower_bound": least}
    return row | {"ratio": round(peak / least, 3), "in_buffers": round(elsewhere.total / least, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    models = chosen(parser.parse_args())
    print_ratios((measure(m) for m in models), "ratio", "in_buffers")


if __name__ == "__main__":
    main()
