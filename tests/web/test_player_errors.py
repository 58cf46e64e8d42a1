"""player.js in Chromium with what is wrong: files, targets, kernels, feeds, devices, and plans with host steps."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import parser
from playwright.sync_api import BrowserContext

from tests.kernels.harness import device, node_model
from tests.kernels.test_bad_shapes import SAID
from tests.web.driver import Player
from tests.web.test_player import compiled, values
from webrt import plan as plan_module
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import (
    DeviceLost,
    InputError,
    KernelError,
    NoAdapter,
    PlanError,
    TargetError,
    UnsupportedType,
    WebrtError,
)
from webrt.plan import Kernel, Plan, ValueInfo
from webrt.planfile import dump, load
from webrt.runtime.session import Session

pytestmark = pytest.mark.xdist_group("chromium")

CHAIN = (
    "agraph (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1.0, -2.0, 3.0, 0.5}>"
    " { a = Add(x, w)  b = Relu(a)  y = Mul(b, a) }"
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled(CHAIN)


def changed(plan: Plan, **parts: Any) -> Plan:
    return dataclasses.replace(plan, **parts)


def test_files_cut_short_are_refused(player: Player, plan: Plan, files: Path, base_url: str) -> None:
    data = dump(plan)
    start = len(data) - 16
    for cut in (0, 1, 7, 8, 9, 100, start - 200, start - 1, start, start + 1, len(data) - 1):
        with pytest.raises(PlanError, match="cut short"):
            player.load(data[:cut])
        (files / "cut.webrt").write_bytes(data[:cut])
        with pytest.raises(PlanError, match="cut short"):
            player.load(f"{base_url}cut.webrt")
    session = player.load(data)
    session.release()


def test_a_flipped_bit_anywhere_is_a_plan_error(player: Player, plan: Plan, files: Path, base_url: str) -> None:
    data = dump(plan)
    places = [*range(0, len(data), 61), *range(len(data) - 64, len(data))]
    assert player.call("flips", plan=base64.b64encode(data).decode(), places=places) == {"PlanError": len(places)}
    flipped = bytearray(data)
    flipped[-10] ^= 4
    (files / "flipped.webrt").write_bytes(flipped)
    with pytest.raises(PlanError, match="damaged, or was changed since it was opened: constant"):
        player.load(f"{base_url}flipped.webrt")
    with pytest.raises(PlanError, match=f"damaged: it ends at {len(data) + 3}, not {len(data)}"):
        player.load(data + b"abc")


def test_a_file_of_version_1_is_read(player: Player) -> None:
    old = Path(__file__).parents[1] / "unit" / "plan_v1.webrt"
    session = player.load(old.read_bytes())
    x = values(3, 4)
    with Session(load(old), device()) as here:
        want = here.run(None, {"x": x})
    for got, expected in zip(session.run({"x": x}).values(), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    session.release()


def test_other_files_are_refused(player: Player, plan: Plan, base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="header is longer"):
        player.load(b"\x08\x07\x12\x04onnx" * 100)
    with pytest.raises(PlanError, match="no webrt plan"):
        player.load((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(PlanError, match="no webrt plan"):
        player.load((4).to_bytes(8, "little") + b"\xff\xfe\x00\x01")
    with monkeypatch.context() as patch, pytest.raises(PlanError, match="version 9, made by a newer webrt; this one"):
        patch.setattr(plan_module, "VERSION", 9)
        player.load(plan)
    with pytest.raises(PlanError, match="HTTP 404"):
        player.load(f"{base_url}missing.webrt")
    with pytest.raises(PlanError, match="cannot be fetched"):
        player.load("http://127.0.0.1:9/nothing.webrt")


@pytest.mark.parametrize(
    ("kind", "known", "other", "words"),
    [
        ("int64", 2, 5, "to 2 when the plan was compiled; 5 was given: compile it again without --known k, or feed 2"),
        (
            "float[3]",
            [0.5, 1, 2],
            [0.5, 1, 3],
            r"to \[0.5, 1.0, 2.0\] when the plan was compiled; another value was given",
        ),
        ("int32[2]", [1, 2], [2, 1], r"to \[1, 2\] when the plan was compiled; \[2, 1\] was given"),
        ("bool", True, False, "to true when the plan was compiled; false was given"),
        ("int64[m]", [7] * 999, [7] * 998 + [8], "when the plan was compiled; another value was given.*feed the same"),
    ],
)
def test_other_values_of_a_fixed_input_are_refused(
    player: Player, kind: str, known: Any, other: Any, words: str
) -> None:
    dtype = {"float": "float32"}.get(kind.split("[")[0], kind.split("[")[0])
    text = (
        f"g (float[n] x, {kind} k) => (float[n] y) {{ f = Cast<to=1>(k) s = ReduceSum<keepdims=0>(f) y = Mul(x, s) }}"
    )
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made = compile_model(model, CompileOptions(known_inputs={"k": np.array(known, dtype)}))
    session, x = player.load(made), values(3)
    assert [i.get("fixed") for i in session.inputs] == [None, True]
    with pytest.raises(InputError, match=f"^'k' was fixed {words}"):
        session.run({"x": x, "k": np.array(other, dtype)})
    with pytest.raises(InputError, match=f"^'k' was fixed {words}"):
        Session(made, device()).run(None, {"x": x, "k": np.array(other, dtype)})
    for feeds in ({"x": x, "k": np.array(known, dtype)}, {"x": x}):
        np.testing.assert_allclose(session.run(feeds)["y"], x * np.sum(np.array(known, np.float32)), rtol=1e-6)


def test_feeds_that_do_not_fit_name_the_expected_ones(player: Player, plan: Plan) -> None:
    session = player.load(plan)
    x = values(2, 4)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, r"no value for 'x'; the inputs are x: float32\[n, 4\]"),
        ({"x": x, "q": x}, "'q' is no input"),
        ({"x": x.astype(np.int32)}, "it is int32; expected is x: float32"),
        ({"x": x[0]}, r"rank 1 was given \(\[4\]\)"),
        ({"x": x[:, :3]}, "axis 1 has size 3 .* 4 is expected"),
        ({"x": {"list": [1, 2, 3]}}, "3 elements without dims"),
        ({"x": {"list": [1, 2, 3], "dims": [1, 4]}}, "is not the shape of 3 elements"),
        ({"x": {"list": [1, 2, 3, 4], "dims": [-1, -4]}}, "its dims are"),
        ({"x": {"list": [1, 2, 3, "4"], "dims": [1, 4]}}, "element 3 of the list, 4, is no float32"),
        ({"x": {"dims": [1, 4]}}, "it has no data"),
    ]
    for feeds, message in wrong:
        with pytest.raises(InputError, match=message):
            session.run(feeds)
    assert session.run({"x": x})["y"].shape == (2, 4)
    with pytest.raises(InputError, match='location is "cpu" or "gpu"'):
        session.run({"x": x}, location="disk")
    session.release()


@pytest.mark.parametrize("what", [k for k in SAID if k != "body"])
def test_sizes_that_do_not_fit_are_told_as_natively(player: Player, what: str) -> None:
    op, inputs, attrs, form, said = SAID[what]
    model, feeds = node_model(op, inputs, attrs, **cast(Any, {"symbolic": True, **form}))
    session = player.load(compile_model(model))
    with pytest.raises(WebrtError) as e:
        session.run(feeds)
    exact = said.partition(": a size overflows")[0]  # JavaScript has no integers of such a size
    assert str(e.value).startswith(f"{op} 'node': {exact}") and (exact != said or str(e.value).endswith(exact))
    session.release()


def test_checks_of_the_plan_refuse_feeds(player: Player, plan: Plan) -> None:
    program = [*plan.dims, ["eq", [0], 3], ["sub", 1, [len(plan.dims)]], ["floordiv", 12, [0]]]
    assert plan.dims[0] == ["var", "n"]
    session = player.load(changed(plan, dims=program, checks=(((len(plan.dims) + 1,), "n must not be 3"),)))
    with pytest.raises(InputError, match="n must not be 3"):
        session.run({"x": values(3, 4)})
    with pytest.raises(InputError, match=r"do not fit the model \(n=0\): a size is divided by zero"):
        session.run({"x": values(0, 4)})
    assert session.run({"x": values(4, 4)})["y"].shape == (4, 4)
    session.release()


def test_refused_wgsl_names_kernel_node_and_line(player: Player, plan: Plan) -> None:
    first = plan.kernels[0]
    broken = Kernel(
        first.name, first.wgsl.replace("fn main", "fn nothing() { let a = nowhere; }\n\nfn main"), first.hash
    )
    with pytest.raises(
        KernelError, match=r"(?s)node '.*the device refused the kernel .*unresolved.*\n> *\d+ fn nothing"
    ):
        player.load(changed(plan, kernels=(broken, *plan.kernels[1:])))


def test_the_latest_of_a_map_are_kept(player: Player) -> None:
    code = """async () => {
      const { keepLatest } = await import("/web/player/kernels.js");
      const map = new Map();
      for (const key of ["a", "b", "a", "c", "c", "a"]) keepLatest(map, key, key.toUpperCase(), 2);
      return [...map];
    }"""
    assert player.page.evaluate(code) == [["c", "C"], ["a", "A"]]


def test_check_kernels_tells_what_tint_says(player: Player, plan: Plan) -> None:
    good = plan.kernels[0]
    broken = Kernel("broken", "fn main( {}", "")
    subgroups = Kernel(
        "sub", "@compute @workgroup_size(4) fn main() { _ = subgroupAdd(1u); }", "", {"features": ["subgroups"]}
    )
    absent = Kernel("absent", "", "", {"features": ["no-such-feature"]})
    said = player.check_kernels([good, broken, subgroups, absent])
    assert [s["name"] for s in said] == [good.name, "broken", "sub", "absent"]
    assert [bool(s["messages"]) for s in said] == [False, True, False, False]
    assert said[3]["missing"] == ["no-such-feature"]


def test_targets_beyond_the_device_are_refused_with_both_numbers(player: Player, plan: Plan) -> None:
    limits = {**plan.target["limits"], "maxStorageBuffersPerShaderStage": 1000}
    with pytest.raises(TargetError, match="maxStorageBuffersPerShaderStage 1000; the device .* has 10"):
        player.load(changed(plan, target={**plan.target, "limits": limits}))
    target = {**plan.target, "features": ["clip-distances"]}
    player.load(changed(plan, target=target)).release()
    kernels = tuple(dataclasses.replace(k, requires={"features": ["clip-distances"]}) for k in plan.kernels)
    with pytest.raises(TargetError, match="'clip-distances' is needed"):
        player.load(changed(plan, target=target, kernels=kernels))
    with pytest.raises(TargetError, match="has the feature 'telepathy', which WebGPU lacks"):
        player.load(changed(plan, target={**plan.target, "features": ["telepathy"]}))


def test_the_first_alternative_that_the_device_meets_runs(player: Player, plan: Plan) -> None:
    step = plan.steps[0]
    kernel = plan.kernels[step.alternatives[0][0]]  # type: ignore[union-attr]
    better = dataclasses.replace(kernel, wgsl="not WGSL;" + kernel.wgsl, requires={"features": ["no-such-feature"]})
    index = len(plan.kernels)
    both = ((index, *step.alternatives[0][1:]), *step.alternatives)  # type: ignore[union-attr]
    steps = (dataclasses.replace(step, alternatives=both), *plan.steps[1:])  # type: ignore[call-arg]
    session = player.load(changed(plan, steps=steps, kernels=(*plan.kernels, better)))
    assert session.run({"x": values(2, 4)})["y"].shape == (2, 4)
    session.release()


def test_sizes_beyond_the_device_are_refused(player: Player) -> None:
    plan = compiled("agraph (float[n, 1] x, float[1, m] y) => (float[n, m] z) { z = Add(x, y) }")
    session = player.load(plan)
    with pytest.raises(TargetError, match=r"^\w+ '.*': the tensor .* needs \d+ bytes .* maxBufferSize \d+"):
        session.run({"x": values(100_000, 1), "y": values(1, 100_000)})
    assert session.run({"x": values(2, 1), "y": values(1, 3)})["z"].shape == (2, 3)
    session.release()


def test_a_lost_device_is_told_at_later_runs(player: Player, plan: Plan) -> None:
    lost = player.call("device")
    session = player.load(plan, device=lost)
    session.run({"x": values(2, 4)})
    player.call("destroy", device=lost)
    with pytest.raises(DeviceLost, match="is lost .*recover the session, or make a new one"):
        session.run({"x": values(2, 4)})
    session.release()
    fresh = player.load(plan)
    assert fresh.run({"x": values(2, 4)})["y"].shape == (2, 4)
    fresh.release()


def test_tensors_of_another_device_are_refused(player: Player, plan: Plan) -> None:
    other = player.call("device")
    there, here = player.load(plan, device=other), player.load(plan)
    handed = there.run({"x": values(2, 4)}, location="gpu")["y"]
    with pytest.raises(InputError, match="a tensor of another device"):
        here.run({"x": {"tensor": handed["tensor"]}})
    there.release()
    here.release()
    player.call("destroy", device=other)


@pytest.mark.parametrize(
    ("agent", "api", "adapter"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Firefox/140.0", "dom.webgpu.enabled", "about:support"),
        ("Mozilla/5.0 (X11; Linux x86_64) Chrome/141.0 Safari/537.36", "#enable-unsafe-webgpu", "#enable-vulkan"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/110.0 Safari/537.36", "Chrome or Edge 113", "chrome://gpu"),
        ("Mozilla/5.0 (Macintosh) Version/18.0 Safari/605.1.15", "Safari 26", "feature flags"),
        ("something else", "a current Chrome", "hardware acceleration"),
    ],
)
def test_no_adapter_says_what_to_switch_on(player: Player, agent: str, api: str, adapter: str) -> None:
    """In each browser by its own words; and that WebGPU wants https."""
    code = """async (agent) => {
      const { openDevice } = await import("/web/player.js");
      const set = (name, value) => Object.defineProperty(navigator, name, { value, configurable: true });
      const told = () => openDevice().then(() => ["", ""], (e) => [e.name, e.message]);
      set("userAgent", agent);
      set("gpu", undefined);
      const none = await told();
      Object.defineProperty(globalThis, "isSecureContext", { value: false, configurable: true });
      const open = await told();
      Object.defineProperty(globalThis, "isSecureContext", { value: true, configurable: true });
      set("gpu", { requestAdapter: async () => null });
      const empty = await told();
      delete navigator.gpu;
      delete navigator.userAgent;
      return [none, open, empty];
    }"""
    none, insecure, empty = player.page.evaluate(code, agent)
    assert {none[0], insecure[0], empty[0]} == {"NoAdapter"}
    assert api in none[1] and adapter in empty[1] and "https" in insecure[1]


def test_no_adapter(context: BrowserContext, base_url: str, plan: Plan) -> None:
    page = context.new_page()
    page.add_init_script("navigator.gpu.requestAdapter = async () => null;")
    page.goto(base_url + "blank.html")
    with pytest.raises(NoAdapter, match="no WebGPU adapter"):
        Player(page).load(plan)
    page.close()


def test_strings_cannot_stay_on_a_device(player: Player) -> None:
    x = ValueInfo("x", "string", ((0,),))
    session = player.load(Plan([["var", "n"]], (x,), (x,), {}, (), (), (), ()))
    assert session.run({"x": np.array(["a", "ü"], object)})["x"]["list"] == ["a", "ü"]
    with pytest.raises(UnsupportedType, match="devices do not hold"):
        session.run({"x": np.array(["a"], object)}, location="gpu")
    with pytest.raises(InputError, match="a list of strings is expected"):
        session.run({"x": {"list": [1, 2], "dims": [2]}})
    session.release()
