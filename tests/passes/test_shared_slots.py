"""Slots that tensors use one after another, inputs too: generated graphs give, bit for bit, what they give where every
tensor has a slot of its own; a caller's tensor stands in for an input until another tensor has its slot."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest

from tests.kernels.harness import device, plain_device
from tests.passes.harness import feeds_of, parse
from webrt import plan as P
from webrt.compiler import memory
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.compiler.slots import Assignment, Shared, Tenant
from webrt.plan import Plan
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor

APART = ("in_place", "fuse_elementwise", "fuse_epilogues")


@pytest.fixture(scope="module")
def plain() -> Iterator[NativeDevice]:
    with plain_device() as made:
        yield made


def apart(tenants: Sequence[Tenant]) -> Assignment:
    """A slot for each."""
    made: Assignment = []
    for i, tenant in enumerate(tenants):
        made.append((Shared(), [i]))
        made[-1][0].hold(tenant)
    return made


def graph(seed: int, free: bool) -> onnx.ModelProto:
    """Convolutions, pools, sums and softmaxes over images of several sizes, each of which may be read much later."""
    draw = random.Random(seed)
    rows = "n" if free else "12"
    values = {"x": (4, 0), "z": (8, 0)}
    weights: dict[str, np.ndarray] = {}
    lines = []
    for k in range(draw.randint(8, 14)):
        name = draw.choice([*values][-4:])
        (channels, halvings), out = values[name], f"v{k}"
        alike = [v for v, form in values.items() if form == values[name] and v != name]
        kind = draw.choice(["conv", "conv", "pool", "wave", "soft", "sum", "sum"])
        if kind == "conv":
            made = draw.choice([4, 8, 12])
            weights[f"w{k}"] = np.random.default_rng(k).standard_normal((made, channels, 1, 1)).astype(np.float32)
            lines.append(f"{out} = Conv({name}, w{k})")
            channels = made
        elif kind == "pool" and halvings == 0:
            lines.append(f"{out} = MaxPool<kernel_shape=[2,2], strides=[2,2]>({name})")
            halvings = 1
        elif kind == "sum" and alike:
            lines.append(f"{out} = Add({name}, {draw.choice(alike)})")
        else:
            lines.append(f"{out} = {'Sin' if kind == 'wave' else 'Softmax<axis=2>'}({name})")
        values[out] = (channels, halvings)
    last, other = [*values][-1], [*values][-3]
    lines += [f"y = Neg({last})", f"u = Neg({other})"]
    inputs = ", ".join(f"float[1,{c},{rows},16] {v}" for v, c in (("x", 4), ("z", 8)))
    return parse(f"agraph ({inputs}) => (float[a,b,c,d] y, float[e,f,g,h] u) {{ {' '.join(lines)} }}", weights)


def plans(model: onnx.ModelProto, on: NativeDevice, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Plan]:
    """With shared slots, and without; what does not change sizes is the same."""
    shared = compile_model(model, CompileOptions(target=on.target))
    with monkeypatch.context() as patched:
        patched.setattr(memory, "share", apart)
        patched.setattr(memory, "side_by_side", lambda tenants, slots, limit: (slots, {}))
        return shared, compile_model(model, CompileOptions(target=on.target, disabled=("in_place",)))


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("textures", [True, False], ids=["textures", "buffers"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in range(1, 60))])
def test_nothing_changes(
    seed: int, textures: bool, free: bool, plain: NativeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, on = graph(seed, free), device() if textures else plain
    shared, alone = plans(model, on, monkeypatch)
    assert free or total(shared) < total(alone)
    assert len(shared.slots) < len(alone.slots)
    with Session(shared, on) as a, Session(alone, on) as b:
        for size in (12, 4, 20) if free else (12, 12):
            feeds = feeds_of(model, size)
            want = b.run(None, feeds)
            for got in (a.run(None, feeds), from_tensors(a, feeds, on), a.run(None, feeds)):
                for x, y in zip(got, want, strict=True):
                    np.testing.assert_array_equal(x, y)


def total(plan: Plan) -> int:
    return sum(slot.size for slot in plan.slots if isinstance(slot.size, int))


def from_tensors(session: Session, feeds: dict[str, np.ndarray], on: NativeDevice) -> list[np.ndarray]:
    """What a run with device tensors gives, which stay as they are."""
    given = {k: Tensor.from_numpy(v, on) for k, v in feeds.items()}
    made = session.run(None, given)
    for name, tensor in given.items():
        np.testing.assert_array_equal(tensor.numpy(), feeds[name])
        tensor.close()
    return made


def test_another_tensor_takes_the_place_of_an_input() -> None:
    model = parse("agraph (float[n,64] x) => (float[n,64] y) { s = Softmax(x) a = Sin(s) y = Cos(a) }")
    plan = compile_model(model, CompileOptions(disabled=APART))
    place = plan.inputs[0].place
    assert place is not None and len(plan.slots) == 2
    dispatches = [s for s in plan.steps if isinstance(s, P.Dispatch)]
    assert [p for s in dispatches for p, access, *_ in s.bindings if access == "w"][1] == place
    assert plan.slots[place[1]].after == plan.slots[place[1]].size


def test_an_input_that_a_tensor_stands_in_for_takes_no_bytes_of_its_own() -> None:
    """The slot is as small as what comes after the input."""
    text = "agraph (float[64,64] x) => (float[1,64] y) { m = ReduceMax<keepdims=1>(x, ax) s = Softmax(m) y = Exp(s) }"
    model = parse(text, {"ax": np.array([0], np.int64)})
    plan = compile_model(model, CompileOptions(target=device().target, disabled=APART))
    slot = next(s for s in plan.slots if s.after)
    assert (slot.size, slot.after) == (16384, 256)
    feeds = feeds_of(model)
    with Session(plan, device()) as session, Tensor.from_numpy(feeds["x"], device()) as x:
        before = device().counters.bytes
        (got,) = session.run(None, {"x": x})
        assert device().counters.bytes - before < 16384
        np.testing.assert_array_equal(got, session.run(None, feeds)[0])
        assert device().counters.bytes - before >= 16384
