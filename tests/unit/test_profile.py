"""Profiles: what is timed, that results stay, the trace's structure, numbers of operations and bytes, the commands."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.kernels.harness import device as shared_device
from webrt.cli import main
from webrt.errors import WebrtError
from webrt.inference import InferenceSession
from webrt.options import SessionOptions
from webrt.runtime import peaks, stamps
from webrt.runtime.native import NativeDevice
from webrt.runtime.profile import CPU_CLOCK, TIMESTAMPS, Recorded, Span, of_player, trace
from webrt.runtime.report import report

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
CHAIN = (
    HEAD
    + """(float[N, 384] x, float[384, 384] w) => (float[N, 384] y)
    { a = MatMul(x, w)  b = MatMul(a, w)  y = MatMul(b, w) }"""
)
MIXED = (
    HEAD
    + """(float[1, 3, H, 8] x, float[4, 3, 3, 3] w) => (float[1, 4, H, 8] y, double[1, 4, H, 8] z)
    { c = Conv<pads = [1, 1, 1, 1]>(x, w)  y = Relu(c)  z = Cast<to = 11>(y) }"""
)


def profiled(text: str, **feeds: Any) -> tuple[InferenceSession, list[Any]]:
    """A session that was profiled for two runs, and the outputs of a third one that was not."""
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    plain = session.run(None, feeds)
    session.start_profiling()
    for _ in range(2):
        for got, want in zip(session.run(None, feeds), plain):
            np.testing.assert_array_equal(got, want)
    return session, plain


def chain_feeds(rows: int = 384) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {n: random.random((k, 384), dtype=np.float32) for n, k in (("x", rows), ("w", 384))}


def mixed_feeds() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {"x": random.random((1, 3, 6, 8), dtype=np.float32), "w": random.random((4, 3, 3, 3), dtype=np.float32)}


def slices(made: dict[str, Any], category: str) -> list[tuple[float, float]]:
    """Begin and end of the trace's slices of a category, in order."""
    found = [e for e in made["traceEvents"] if e["ph"] == "X" and e["cat"] == category]
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in found)


def test_kernels_add_up() -> None:
    """The slices of a submit are in order, lie within it and fill it. The device's clock is set by the host's, which a
    busy machine delays: one of ten runs has to show it."""
    rows = 384 if shared_device().target.kind == "software" else 64 * 384
    seen: list[tuple[bool, float]] = []
    while len(seen) < 10 and not any(within and gap < 0.05 for within, gap in seen):
        session, _ = profiled(CHAIN, **chain_feeds(rows))
        made = trace(session.profiled_runs, "here")
        kernels, submits = slices(made, "dispatch"), slices(made, "submit")
        assert len(submits) == 2 and len(kernels) == 2 * session.last_run.dispatches
        assert all(end <= after for (_, end), (after, _) in pairwise(kernels))
        every = sorted([*kernels, *slices(made, "fill"), *slices(made, "copy")])
        within = all(any(b <= begin and end <= e for b, e in submits) for begin, end in kernels)
        gaps = [1 - sum(e - b for b, e in every if begin <= b < end) / (end - begin) for begin, end in submits]
        seen += [(within, gap) for gap in gaps]
    assert any(within and gap < 0.05 for within, gap in seen), seen


def test_steps_are_described() -> None:
    session, _ = profiled(CHAIN, **chain_feeds(16))
    made = report(session.profiled_runs, "here")
    products = [n for n in made["nodes"] if n["op"] == "MatMul"]
    assert len(products) == 3 and made["runs"] == 2 and made["clock"] == TIMESTAMPS
    for node in products:
        assert node["flop"] == 2 * 16 * 384 * 384
        assert node["kernels"] and node["provider"] == "webgpu" and node["gflops"] > 0 and node["gbs"] > 0
    assert "float32[384, 384]" in products[0]["tensors"]
    assert sum(n["share"] for n in made["nodes"]) == pytest.approx(1)
    one = next(s for s in made["steps"] if s["op"] == "MatMul" and len(s["tensors"]) == 3)
    assert one["bytes"] == 4 * (16 * 384 * 2 + 384 * 384) and one["groups"]


def test_fused_nodes_and_the_cpu_provider() -> None:
    session, _ = profiled(MIXED, **mixed_feeds())
    made = report(session.profiled_runs, "here")
    conv = next(n for n in made["nodes"] if n["op"] == "Conv + Relu")
    assert conv["flop"] == 2 * 4 * 6 * 8 * 3 * 9
    cast = next(n for n in made["nodes"] if n["op"] == "Cast")
    assert cast["provider"] == "cpu" and cast["flop"] is None and made["host_ms"] > 0
    assert len(slices(trace(session.profiled_runs, "here"), "host")) == 2


def test_a_device_without_timestamp_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeDevice, "stamps", lambda self, count: None)
    session, _ = profiled(MIXED, **mixed_feeds())
    before = session.device.counters.buffers
    session.run(None, mixed_feeds())
    assert session.device.counters.buffers == before
    runs = session.profiled_runs
    assert {r.clock for r in runs} == {CPU_CLOCK}
    assert report(runs, "here")["dispatches"] == session.last_run.dispatches


def test_many_commands_take_several_query_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    few = profiled(CHAIN, **chain_feeds(16))[0].profiled_runs
    monkeypatch.setattr(stamps, "MOST", 2)
    many = profiled(CHAIN, **chain_feeds(16))[0].profiled_runs
    assert [s[::3] for s in many[0].spans] == [s[::3] for s in few[0].spans]
    assert all(s.begin <= s.end for s in many[0].spans)


def test_nothing_is_timed_while_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, count: int) -> None:
        raise AssertionError("a query set was made")

    monkeypatch.setattr(NativeDevice, "stamps", refuse)
    session = InferenceSession(onnx.parser.parse_model(MIXED).SerializeToString())
    session.run(None, mixed_feeds())
    assert session.profiled_runs == [] and session.end_profiling() == ""


def test_session_option_writes_a_trace(tmp_path: Path) -> None:
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "mine_")
    session = InferenceSession(onnx.parser.parse_model(MIXED).SerializeToString(), options)
    session.run(None, mixed_feeds())
    name = session.end_profiling()
    assert Path(name).parent == tmp_path and Path(name).name.startswith("mine_")
    made = json.loads(Path(name).read_text())
    check_trace(made)
    assert session.end_profiling() == "" and session.profiled_runs == []
    options.profile_file_prefix = str(tmp_path / "nowhere" / "x")
    other = InferenceSession(onnx.parser.parse_model(MIXED).SerializeToString(), options)
    with pytest.raises(WebrtError, match="cannot write"):
        other.end_profiling()


def check_trace(made: dict[str, Any]) -> None:
    """Chrome's format, as far as its viewers need it."""
    assert set(made) == {"traceEvents", "displayTimeUnit", "otherData"}
    for e in made["traceEvents"]:
        assert e["ph"] in ("X", "M") and isinstance(e["name"], str) and e["pid"] == 1
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name") and e["args"]["name"]
        else:
            assert e["dur"] >= 0 and e["ts"] > -1e6 and e["tid"] in (1, 2, 3) and e["args"]
    for thread in (1, 3):
        spans = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in made["traceEvents"] if e.get("tid") == thread and "ts" in e
        )
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_a_players_run() -> None:
    session = InferenceSession(onnx.parser.parse_model(MIXED).SerializeToString())
    index = next(i for i, s in enumerate(session.plan.steps) if s.kind == "host")
    spans = [
        {"step": 0, "begin": 1.5, "end": 2, "kind": "dispatch"},
        {"step": index, "begin": 3, "end": 4, "kind": "host"},
    ]
    run = {
        "begin": 1, "end": 5, "clock": TIMESTAMPS, "values": [], "kernels": {"0": 0}, "submits": [[1.5, 2]],
        "spans": spans,
    }  # fmt: skip
    got = of_player(session.plan, run, [Span(index, 3_100_000, 3_200_000, "host")])
    assert (got.begin, got.end, got.submits) == (1_000_000, 5_000_000, [(1_500_000, 2_000_000)])
    assert got.spans == [Span(0, 1_500_000, 2_000_000), Span(index, 3_100_000, 3_200_000, "host")]
    rows = report([got], "there")["steps"]
    assert [r["ms"] for r in rows] == [0.5, 0.1] and rows[0]["tensors"]


def test_device_times_are_laid_beside_the_hosts() -> None:
    session = InferenceSession(onnx.parser.parse_model(MIXED).SerializeToString())
    run = Recorded(session.plan, 0)
    run.submitted([(0, "dispatch"), (-1, "copy")], [(70, 90), (95, 94)], 1000)
    assert run.spans == [Span(0, 976, 996), Span(-1, 1001, 1001, "copy")]
    assert run.submits == [(976, 1001)]


def test_peaks_are_positive_and_leave_nothing() -> None:
    device = NativeDevice()
    found = peaks.measure(device, 1)
    assert found.gflops > 0 and found.gbs > 0 and device.counters.buffers == 0
    device.close()


class Page(HTMLParser):
    """The names of a page's elements, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attrs: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attrs += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_command_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(CHAIN)
    model.graph.node[0].name = "<img src=x onerror=alert(1)>"
    onnx.save(model, "model.onnx")
    np.savez("feeds.npz", **{f"in:{k}": v for k, v in chain_feeds(4).items()}, **{"out:y": np.zeros(1)})
    args = ["profile", "model.onnx", "--inputs", "feeds.npz", "--repeat", "2", "-o", "t.json", "--html", "p.html"]
    assert main(args) == 0
    out = capsys.readouterr().out
    assert "GFLOP/s in FMAs" in out and "MatMul" in out and "wrote      t.json" in out and "wrote      p.html" in out
    check_trace(json.loads(Path("t.json").read_text()))
    seen = Page()
    seen.feed(Path("p.html").read_text())
    assert "img" not in seen.tags and "<img src=x onerror=alert(1)>" in seen.text
    assert not [v for k, v in seen.attrs if k in ("src", "href") and v != "data:,"]
    assert main(["profile", "model.onnx", "--dim", "N=2", "--repeat", "1", "--no-peaks", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["peaks"] is None and made["nodes"] and made["steps"] and made["made_up"]
    assert main(["profile", "model.onnx", "-o", "no/t.json"]) == 1
    assert "there is no folder no" in capsys.readouterr().err


def test_command_profile_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(CHAIN), "model.onnx")
    assert main(["profile", "model.onnx", "--dim", "N=2", "--provider", "cpu", "--html", "p.html"]) == 0
    assert "nothing ran on the device" in capsys.readouterr().out
    assert Path("p.html").read_text().count("<tr data-text=") == 3


def test_command_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(CHAIN), "model.onnx")
    assert main(["compile", "model.onnx"]) == 0
    capsys.readouterr()
    assert main(["bench", "model.onnx", "model.webrt", "--dim", "N=2", "--repeat", "3"]) == 0
    out = capsys.readouterr().out
    assert "adapter" in out and "model.webrt" in out and "first run" in out
    assert main(["bench", "model.onnx", "--dim", "N=2", "--repeat", "3", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert len(row["times"]) == 3 and min(row["times"]) <= row["median"] <= row["p95"] <= max(row["times"])
    assert row["dispatches"] >= 3 and row["device_bytes"] > 0 and row["bytes_down"] == 4 * 2 * 384
    assert row["buffers_made"] == 0
