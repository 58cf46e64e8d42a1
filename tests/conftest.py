"""Settings of all tests, and `pytest tests/conformance --conformance-json FILE`: what the conformance tests counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import draws

# The same cases at every run, and none refused because the machine is busy.
settings.register_profile("webrt", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("webrt")

_RESULTS = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance-json", type=Path, help="write the executors' counts per case and device to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = {}
    if config.getoption("--conformance-json") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config), "conformance-collector")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function):
        draws.begin(item.nodeid)


class _Collector:
    """Gathers the `conformance` property of every passed test, in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for key, value in report.user_properties:
                if key == "conformance":
                    self.config.stash[_RESULTS].setdefault(value["device"], {})[value["case"]] = {
                        k: v for k, v in value.items() if k not in ("device", "case")
                    }

    def pytest_sessionfinish(self) -> None:
        found = self.config.stash[_RESULTS]
        data = {device: dict(sorted(cases.items())) for device, cases in sorted(found.items())}
        path: Path = self.config.getoption("--conformance-json")
        path.write_text(json.dumps(data, indent=0, sort_keys=True) + "\n", encoding="utf-8")
