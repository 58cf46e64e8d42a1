"""player.js in Chromium: kernels that the browser refuses leave their place to the next alternative."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.plans import TUNINGS
from tests.textured import expected, refused_plan
from tests.web.driver import Player
from webrt.errors import KernelError
from webrt.planfile import dump

pytestmark = pytest.mark.xdist_group("chromium")

X = np.arange(6, dtype=np.float32)


@pytest.fixture
def warnings(player: Player) -> Iterator[list[str]]:
    found: list[str] = []
    listen = lambda message: found.append(message.text) if message.type == "warning" else None  # noqa: E731
    player.page.on("console", listen)
    yield found
    player.page.remove_listener("console", listen)


def test_the_next_alternative_runs_and_a_warning_names_the_refused(player: Player, warnings: list[str]) -> None:
    session = player.load(refused_plan([1]))
    np.testing.assert_array_equal(session.run({"x": X})["y"], expected(X)[0])
    (line,) = [w for w in warnings if w.startswith("webrt:")]
    assert line.startswith("webrt: the kernel 'wrong' of Add 'sum' is left out: the device refused it: ")
    assert "nowhere" in line
    assert session.release()["buffers"] == 0


def test_warnings_go_where_the_caller_says(player: Player, warnings: list[str]) -> None:
    session = player.load(refused_plan([1]), tuning=TUNINGS["base"], quiet=True)
    assert not [w for w in warnings if w.startswith("webrt:")]
    tuning, kernel = session.warned
    assert tuning.startswith("the tuning that was given is ignored: ")
    assert kernel.startswith("the kernel 'wrong' of Add 'sum' is left out: the device refused it: ")
    session.release()


def test_errors_only_by_the_severity_of_the_session(
    player: Player, files: Path, base_url: str, warnings: list[str]
) -> None:
    (files / "severity.webrt").write_bytes(dump(refused_plan([1])))
    for severity, logged in ((3, 0), (2, 1)):
        player.page.evaluate(
            """async ([url, logSeverityLevel]) => {
              const { InferenceSession } = await import("/web/webrt.js");
              await (await InferenceSession.create(url, { logSeverityLevel })).release();
            }""",
            [f"{base_url}severity.webrt", severity],
        )
        assert len([w for w in warnings if "is left out" in w]) == logged


@pytest.mark.parametrize("by", ["bytes", "url"])
def test_constants_follow_to_where_the_next_alternative_reads_them(
    player: Player, files: Path, base_url: str, by: str
) -> None:
    data = dump(refused_plan([2]))
    (files / "refused.webrt").write_bytes(data)
    session = player.load(data if by == "bytes" else f"{base_url}refused.webrt")
    np.testing.assert_array_equal(session.run({"x": X})["y"], expected(X)[0] + 100)
    assert session.release()["buffers"] == 0


def test_a_kernel_that_only_some_sizes_need_is_refused_when_they_come(player: Player) -> None:
    session = player.load(refused_plan([1], late=True))
    for n in (6, 5, 6, 5):
        want = expected(X[:n])[0] - (100 if n == 5 else 0)
        np.testing.assert_array_equal(session.run({"x": X[:n]})["y"], want)
    assert session.release()["buffers"] == 0


@pytest.mark.parametrize("then", [[], [5]], ids=["none", "another-target"])
def test_where_none_is_left_the_error_names_the_node(player: Player, then: list[int]) -> None:
    with pytest.raises(KernelError, match=r"^Add, node 'sum': the device refused the kernel 'wrong'"):
        player.load(refused_plan(then))
