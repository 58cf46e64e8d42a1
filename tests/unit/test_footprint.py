"""The bytes that a plan is said to need are those that a device holds for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from tests.kernels.harness import device, plain_device
from tests.passes.harness import feeds_of, parse
from webrt.cli.inspect import describe
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import TargetError
from webrt.runtime.device import padded
from webrt.runtime.footprint import Footprint, footprint, texture_bytes
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.subplans import Branch
from webrt.target import BASE

IMAGES = """agraph (float[{n},8,24,24] x) => (float[a,b,c,d] y) {{
    a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv(b, v) d = Add(c, b) y = Softmax<axis=1>(d) }}"""
BRANCH = """agraph (float[64] x) => (float[64] y) { s = ReduceSum<keepdims=0>(x) m = ReduceMax<keepdims=0>(x)
    on = Less(s, m) y = If(on) <
    then_branch = yes () => (float[64] t) { u = Sin(x) t = Softmax(u) },
    else_branch = no () => (float[64] e) { e = Softmax(x) }> }"""


def images(n: str = "1") -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 8, 3, 3)), "v": rng.standard_normal((8, 8, 1, 1))}
    return parse(IMAGES.format(n=n), {k: w.astype(np.float32) for k, w in weights.items()})


@pytest.fixture(scope="module")
def plain() -> Iterator[NativeDevice]:
    with plain_device() as made:
        yield made


@pytest.mark.parametrize("textures", [True, False], ids=["textures", "buffers"])
def test_a_device_holds_what_is_told(textures: bool, plain: NativeDevice) -> None:
    model, on = images(), device() if textures else plain
    plan = compile_model(model, CompileOptions(target=on.target))
    found = footprint(plan, on.target)
    assert found is not None and (found.textures > 0) == (on.target.kind == "software")
    on._staging.drop()
    before = on.counters.bytes
    with Session(plan, on) as session:
        for _ in range(2):
            session.run(None, feeds_of(model))
        on._staging.drop()
        assert on.counters.bytes - before == found.total + padded(plan.params_size)
    assert describe(plan)["memory"]["peak"] == found.total
    assert describe(plan)["memory"]["lower_bound"] <= found.total


def test_what_is_in_branches_counts() -> None:
    plan = compile_model(parse(BRANCH), CompileOptions())
    found = footprint(plan, device().target)
    slots = [*plan.slots, *(s for step in plan.steps if isinstance(step, Branch) for b in step.bodies for s in b.slots)]
    assert found is not None and len(slots) > len(plan.slots)
    assert found.slots == sum(s.size for s in slots if isinstance(s.size, int))


def test_free_sizes_have_no_footprint() -> None:
    plan = compile_model(images("n"), CompileOptions())
    assert footprint(plan, BASE) is None
    assert describe(plan)["memory"] == {"peak": None, "lower_bound": None}


def test_a_device_that_is_too_small_is_refused() -> None:
    plan = compile_model(images(), CompileOptions())
    with pytest.raises(TargetError, match="maxBufferSize .* has 1024"):
        footprint(plan, BASE.with_limits(maxBufferSize=1024))


def test_textures_are_whole_rows_or_less_than_one() -> None:
    assert [texture_bytes(n) for n in (1, 1024, 1025)] == [16, 16384, 32768]
    assert Footprint(1, 2, 3).total == 6
