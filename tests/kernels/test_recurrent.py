"""RNN, GRU and LSTM against onnxruntime (the host provider where that lacks layout 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node, node_model, oracle, run_native
from tests.tolerance import close
from webrt.host import run_model
from webrt.ops.recurrent import MAX_HIDDEN

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def normal(*shape: int, dtype: str = "float32") -> Array:
    return (RNG.standard_normal(shape) * 0.5).astype(dtype)


def inputs(
    op: str, steps: int, batch: int, width: int, hidden: int, *, directions: int = 1, layout: int = 0,
    bias: bool = True, lengths: list[int] | None = None, states: bool = False, peepholes: bool = False,
    dtype: str = "float32",
) -> list[Array | None]:  # fmt: skip
    gates = GATES[op]
    shape = (batch, steps, width) if layout else (steps, batch, width)
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    out: list[Array | None] = [
        normal(*shape, dtype=dtype),
        normal(directions, gates * hidden, width, dtype=dtype),
        normal(directions, gates * hidden, hidden, dtype=dtype),
        normal(directions, 2 * gates * hidden, dtype=dtype) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        normal(*state, dtype=dtype) if states else None,
    ]
    if op == "LSTM":
        out.append(normal(*state, dtype=dtype) if states else None)
        out.append(normal(directions, 3 * hidden, dtype=dtype) if peepholes else None)
    return out


def check(op: str, values: list[Array | None], hidden: int, attrs: dict[str, Any], **more: Any) -> None:
    check_node(op, values, {"hidden_size": hidden, **attrs}, outputs=3 if op == "LSTM" else 2, **more)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    check(op, inputs(op, 5, 3, 7, 18, directions=count, states=True), 18, {"direction": direction}, constants=[1, 2, 3])
    values = inputs(op, 6, 3, 4, 5, directions=count, lengths=[6, 2, 4], bias=False)
    check(op, values, 5, {"direction": direction})


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_batch_first(op: str) -> None:
    values = inputs(op, 4, 3, 5, 6, directions=2, layout=1, states=True)
    check(op, values, 6, {"direction": "bidirectional", "layout": 1}, constants=[1, 2])


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_opsets(op: str, opset: int) -> None:
    check(op, inputs(op, 3, 2, 4, 8), 8, {}, opset=opset, constants=[1, 2, 3])


def test_hidden_state_beyond_a_workgroup() -> None:
    check("LSTM", inputs("LSTM", 3, 1, 8, 300), 300, {}, constants=[1, 2, 3])
    check("GRU", inputs("GRU", 3, 1, 8, 300), 300, {}, constants=[1, 2, 3])


def test_reset_gates() -> None:
    values = inputs("GRU", 5, 2, 3, 20, states=True)
    check("GRU", values, 20, {"linear_before_reset": 1}, constants=[1, 2, 3])
    check("GRU", inputs("GRU", 5, 2, 3, 20, bias=False), 20, {"linear_before_reset": 1}, constants=[1, 2])


def by_the_text(op: str, values: list[Array | None], hidden: int, attrs: dict[str, Any]) -> None:
    """Against the host provider."""
    count = 3 if op == "LSTM" else 2
    model, feeds = node_model(op, values, {"hidden_size": hidden, **attrs}, outputs=count)
    check(op, values, hidden, attrs, expected=[np.asarray(v) for v in run_model(model, feeds).values()])


def test_clip() -> None:
    """The text: "applied to the input of activations", of which h(Cₜ) is one; onnxruntime leaves that one out."""
    by_the_text("LSTM", inputs("LSTM", 5, 2, 3, 9, states=True), 9, {"clip": 0.4})
    check("GRU", inputs("GRU", 5, 2, 3, 9, states=True), 9, {"clip": 0.4})


def test_peepholes_and_coupled_gates() -> None:
    values = inputs("LSTM", 5, 2, 3, 9, states=True, peepholes=True)
    check("LSTM", values, 9, {}, constants=[1, 2, 3, 7])
    check("LSTM", inputs("LSTM", 5, 2, 3, 9), 9, {"input_forget": 1}, constants=[1, 2, 3])


@pytest.mark.parametrize(
    "names",
    [["HardSigmoid", "ScaledTanh", "Softsign"], ["LeakyRelu", "Affine", "Relu"], ["Sigmoid", "Elu", "Softplus"]],
)
def test_activations(names: list[str]) -> None:
    values = inputs("LSTM", 4, 2, 3, 5, directions=2)
    numbers = {"activation_alpha": [0.3, 0.6, 0.7, 0.4] * 2, "activation_beta": [0.4, 0.9] * 3}
    attrs = {"direction": "bidirectional", "activations": [*names, "Sigmoid", "Tanh", "Tanh"], **numbers}
    by_the_text("LSTM", values, 5, attrs)


def test_half_precision() -> None:
    check("LSTM", inputs("LSTM", 4, 2, 5, 7, dtype="float16"), 7, {}, constants=[1, 2, 3])


def test_no_steps_and_no_batch() -> None:
    for steps, batch in ((0, 2), (3, 0)):
        values = inputs("GRU", steps, batch, 3, 4, states=True)
        model, feeds = node_model("GRU", values, {"hidden_size": 4}, outputs=2, constants=[1, 2])
        got, plan = run_native(model, feeds)
        assert not plan.host_steps
        assert got[0].shape == (steps, 1, batch, 4)
        close(got[1], values[5] if steps == 0 else np.zeros((1, 0, 4), np.float32))  # type: ignore[arg-type]


def test_only_the_last_state() -> None:
    check_node("LSTM", inputs("LSTM", 4, 2, 3, 5), {"hidden_size": 5}, outputs=[False, True, False], constants=[1, 2])


def test_long_sequences_take_several_launches() -> None:
    """More steps than one invocation may walk through."""
    values = inputs("RNN", 2300, 1, 2, 400)
    values[1:3] = [0.1 * values[1], 0.1 * values[2]]  # type: ignore[operator]
    model, feeds = node_model("RNN", values, {"hidden_size": 400}, outputs=2, constants=[1, 2, 3], symbolic=[0])
    got, plan = run_native(model, feeds)
    assert not plan.host_steps
    assert len([s for s in plan.steps if s.kind == "dispatch"]) > 3
    for g, w in zip(got, oracle(model, feeds), strict=True):
        close(g, w)


def test_a_hidden_state_that_is_too_large_stays_on_the_cpu() -> None:
    hidden = MAX_HIDDEN + 1
    values: list[Array | None] = [normal(1, 1, 1), normal(1, hidden, 1), np.zeros((1, hidden, hidden), np.float32)]
    plan = check_node("RNN", values, {"hidden_size": hidden}, outputs=2, on_device=False, symbolic=False)
    assert "hidden size" in plan.placement[0].reason
