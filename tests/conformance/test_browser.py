"""Every node case that runs wholly on WebGPU, compiled here and replayed by player.js in one Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import cases as C
from tests.web.driver import Player
from webrt.errors import PlacementError

RecordProperty = Callable[[str, object], None]

pytestmark = pytest.mark.xdist_group("browser")

NAMES = [n for n in sorted(C.cases()) if n not in C.expected()["fails"]]
ON_DEVICE = [n for n in NAMES if C.expected_kind(n) != "cpu"]
WITH_HOST_STEPS = [n for n in NAMES if C.expected_kind(n) == "cpu"]


@pytest.fixture(scope="module")
def device(player: Player) -> int:
    """One GPUDevice for all cases."""
    number: int = player.call("device")
    return number


@pytest.mark.parametrize("name", ON_DEVICE)
def test_browser(name: str, player: Player, device: int, record_property: RecordProperty) -> None:
    """The values that the browser gives; what is wholly on WebGPU really dispatched or copied there."""
    case = C.cases()[name]
    session = player.load(C.compile_case(case), device)
    try:
        got = session.run(dict(case.feeds))
        counters = session.counters
    finally:
        session.release()
    kind = C.expected_kind(name)
    counts = {k: counters[k] for k in ("dispatches", "copies")}
    record_property("conformance", {"device": "browser", "case": name, "op": case.op, "kind": kind, **counts})
    C.compare(case, [got[o["name"]] for o in session.outputs])
    if kind == "webgpu":
        assert counters["dispatches"] + counters["copies"] > 0


@pytest.mark.parametrize("name", WITH_HOST_STEPS[::10])
def test_bare_player_refuses_host_steps(name: str, player: Player, device: int) -> None:
    """Without Python a plan with nodes for the CPU provider is refused at load, by name."""
    plan = C.compile_case(C.cases()[name])
    with pytest.raises(PlacementError, match="nodes for the CPU provider"):
        player.load(plan, device)
