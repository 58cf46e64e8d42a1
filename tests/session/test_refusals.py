"""Limits, targets, kernels and plans that a session refuses, by name and before anything runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.session.models import (
    AFFINE,
    HEAD,
    affine,
    check_affine,
    made,
)
from webrt.errors import InputError, KernelError, PlanError, TargetError
from webrt.plan import Dispatch, Kernel, Plan
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.target import BASE


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"maxStorageBufferBindingSize": 4096}, "needs 240000 bytes at these sizes; .*BindingSize 4096"),
        ({"maxComputeWorkgroupsPerDimension": 8}, r"needs \d+ workgroups .* maxComputeWorkgroupsPerDimension 8"),
    ],
)
def test_limits_are_named_before_anything_is_submitted(limits: dict[str, int], message: str) -> None:
    device = NativeDevice(limits=limits)
    with Session(replace(made(AFFINE), target=device.target.to_json()), device) as session:
        check_affine(session, 20)
        submits = device.counters.submits
        with pytest.raises(TargetError, match=message):
            session.run(None, affine(20_000))
        assert device.counters.submits == submits
        check_affine(session, 30)
    assert device.counters.buffers == 0
    device.close()


def test_a_plan_for_a_larger_device_is_refused(device: NativeDevice) -> None:
    plan = made(AFFINE)
    more = device.target.limit("maxComputeWorkgroupStorageSize") + 1
    wanted = device.target.with_limits(maxComputeWorkgroupStorageSize=more).to_json()
    with pytest.raises(TargetError, match=f"maxComputeWorkgroupStorageSize {more}; .* has {more - 1}"):
        Session(replace(plan, target=wanted), device)


def test_a_target_with_a_feature_of_no_device_is_refused(device: NativeDevice) -> None:
    """Though no kernel needs it; one of WebGPU's that the device lacks is no reason."""
    plan = made(AFFINE)
    with Session(replace(plan, target=device.target.to_json() | {"features": ["clip-distances"]}), device) as session:
        check_affine(session, 3)
    with pytest.raises(TargetError, match="has the feature 'subgroup', which WebGPU lacks: did you mean 'subgroups'"):
        Session(replace(plan, target=device.target.to_json() | {"features": ["subgroup"]}), device)
    with pytest.raises(TargetError, match="has the feature 'telepathy', which WebGPU lacks: it has "):
        made(AFFINE, target=replace(BASE, features=frozenset({"telepathy"})))


def _with_first_kernel(plan: Plan, kernel: Kernel, keep: bool) -> Plan:
    """The first dispatch prefers `kernel`; its own stays behind it if `keep`."""
    steps = list(plan.steps)
    at = next(i for i, s in enumerate(steps) if isinstance(s, Dispatch))
    step = steps[at]
    assert isinstance(step, Dispatch)
    first = (len(plan.kernels), *step.alternatives[0][1:])
    steps[at] = replace(step, alternatives=(first, *(step.alternatives if keep else ())))
    return replace(plan, kernels=(*plan.kernels, kernel), steps=tuple(steps))


def test_alternatives_are_taken_by_what_the_device_meets(device: NativeDevice) -> None:
    plan = made(AFFINE)
    first = next(s for s in plan.steps if isinstance(s, Dispatch))
    own = plan.kernels[first.alternatives[0][0]]
    distant = replace(own, requires={"features": ["clip-distances"]})
    with Session(_with_first_kernel(plan, distant, keep=True), device) as session:
        check_affine(session, 3)
    target = device.target.to_json() | {"features": ["clip-distances"]}
    with pytest.raises(TargetError, match="'clip-distances' is needed"):
        Session(replace(_with_first_kernel(plan, distant, keep=False), target=target), device)


def test_a_refused_kernel_names_its_node(device: NativeDevice) -> None:
    plan = made(AFFINE)
    first = next(s for s in plan.steps if isinstance(s, Dispatch))
    own = plan.kernels[first.alternatives[0][0]]
    bad = replace(own, wgsl=own.wgsl + "\nfn broken() -> u32 { return nothing; }\n", hash="bad")
    with pytest.raises(KernelError, match="nothing") as e:
        Session(_with_first_kernel(plan, bad, keep=False), device)
    assert e.value.op == plan.placement[first.node].op


def test_numbers_beyond_32_bits_and_checks(device: NativeDevice) -> None:
    plan = made(HEAD + "(float[N] x) => (float[N] y) { y = Neg(x) }")
    huge = replace(plan, dims=[*plan.dims, ["mul", 1 << 20, 1 << 20]])
    at = next(i for i, s in enumerate(huge.steps) if isinstance(s, Dispatch))
    step = huge.steps[at]
    assert isinstance(step, Dispatch)
    wide = replace(step, params=((len(huge.dims) - 1,), *step.params[1:]))
    steps = (*huge.steps[:at], wide, *huge.steps[at + 1 :])
    with Session(replace(huge, steps=steps), device) as session, pytest.raises(TargetError, match=str(1 << 40)):
        session.run(None, {"x": np.zeros(3, np.float32)})
    refused = replace(plan, checks=((0, "only on Sundays"),))
    with Session(refused, device) as session, pytest.raises(InputError, match="only on Sundays"):
        session.run(None, {"x": np.zeros(3, np.float32)})


def test_a_broken_plan_reaches_no_device(device: NativeDevice) -> None:
    plan = made(AFFINE)
    with pytest.raises(PlanError):
        Session(replace(plan, params_size=-1), device)


def test_a_refused_kernel_gives_the_uploads_back(device: NativeDevice) -> None:
    plan = made(HEAD + "(float[N, 2] x) => (float[N, 2] y) <float[2] w = {1.0, 2.0}> { y = Mul(x, w) }")
    broken = tuple(replace(k, wgsl=k.wgsl.replace("fn main", "fn main_")) for k in plan.kernels)
    with pytest.raises(KernelError, match="Mul"):
        Session(replace(plan, kernels=broken), device)
