"""RNN, GRU and LSTM: every direction, activation, clip, peephole, ragged batch and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.activation import sigmoid, softplus
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide

Activation = Callable[[Array], Array]
State = tuple[Array, ...]

# name → (function of x, alpha, beta; default alpha; default beta); None where the function takes no such number
_FUNCTIONS: dict[str, tuple[Callable[[Array, float, float], Array], float | None, float | None]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: sigmoid(x), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)), 1.0, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: softplus(x), None, None),
}


def _bound(function: Callable[[Array, float, float], Array], a: float, b: float, clip: float) -> Activation:
    if clip > 0:
        return lambda x: function(np.clip(x, -clip, clip), a, b)
    return lambda x: function(x, a, b)


def _activations(call: Call, default: tuple[str, ...], directions: int) -> list[Activation]:
    """The activations of all directions; alpha and beta go, in order, to the functions that take them."""
    names = call.strings("activations") or list(default) * directions
    if call.op_type == "RNN":
        names = names[:directions]
    if len(names) != len(default) * directions:
        raise InvalidModel(f"{len(names)} activations for {directions} directions; {len(default)} each are needed")
    alphas, betas, clip = (
        iter(call.floats("activation_alpha")),
        iter(call.floats("activation_beta")),
        call.get("clip", 0.0),
    )
    found = []
    for name in names:
        if name.lower() not in _FUNCTIONS:
            raise InvalidModel(f"the activation {name!r} is not one that ONNX defines")
        function, alpha, beta = _FUNCTIONS[name.lower()]
        a = _next(alphas, alpha)
        b = _next(betas, beta)
        found.append(_bound(function, a, b, float(clip)))
    return found


def _next(numbers: Iterator[float], default: float | None) -> float:
    return 0.0 if default is None else next(numbers, default)


@dataclass(frozen=True)
class Layer:
    """One direction of a recurrent layer: weights [gates * hidden, …], split bias, activations."""

    w: Array
    r: Array
    wb: Array
    rb: Array
    peephole: Array | None
    act: list[Activation]

    @property
    def hidden(self) -> int:
        """The size of the hidden state."""
        return int(self.r.shape[-1])


Cell = Callable[[Call, Layer, Array, State], State]


def _rnn_cell(call: Call, layer: Layer, x: Array, state: State) -> State:
    return (layer.act[0](x + state[0] @ layer.r.T + layer.rb),)


def _gru_cell(call: Call, layer: Layer, x: Array, state: State) -> State:
    h, n, (f, g) = state[0], layer.hidden, layer.act
    recurrent = h @ layer.r[: 2 * n].T + layer.rb[: 2 * n]
    z = f(x[:, :n] + recurrent[:, :n])
    r = f(x[:, n : 2 * n] + recurrent[:, n:])
    if call.get("linear_before_reset", 0):
        candidate = g(x[:, 2 * n :] + r * (h @ layer.r[2 * n :].T + layer.rb[2 * n :]))
    else:
        candidate = g(x[:, 2 * n :] + (r * h) @ layer.r[2 * n :].T + layer.rb[2 * n :])
    return ((1 - z) * candidate + z * h,)


def _lstm_cell(call: Call, layer: Layer, x: Array, state: State) -> State:
    (h, c), n, (f, g, out) = state, layer.hidden, layer.act
    gates = x + h @ layer.r.T + layer.rb
    p = layer.peephole if layer.peephole is not None else np.zeros(3 * n, x.dtype)
    i = f(gates[:, :n] + p[:n] * c)
    forget = 1 - i if call.get("input_forget", 0) else f(gates[:, 2 * n : 3 * n] + p[2 * n :] * c)
    c_next = forget * c + i * g(gates[:, 3 * n :])
    o = f(gates[:, n : 2 * n] + p[n : 2 * n] * c_next)
    return o * out(c_next), c_next


def _reverse_rows(x: Array, lengths: Array) -> Array:
    """x [T, N, …] with the first `length` steps of each sequence turned round."""
    steps = np.arange(x.shape[0])[:, None]
    order = np.where(steps < lengths, lengths - 1 - steps, steps)
    return np.take_along_axis(x, order.reshape(order.shape + (1,) * (x.ndim - 2)), 0)


def _scan(call: Call, cell: Cell, layer: Layer, x: Array, state: State, lengths: Array) -> tuple[Array, State]:
    """Outputs [T, N, H], zero behind each sequence's end, and the states at those ends."""
    projected = x @ layer.w.T + layer.wb
    ragged = bool((lengths < x.shape[0]).any())
    outputs = np.zeros((*x.shape[:2], layer.hidden), projected.dtype)
    for t in range(x.shape[0]):
        new = cell(call, layer, projected[t], state)
        if ragged:
            alive = (t < lengths)[:, None]
            outputs[t] = np.where(alive, new[0], 0)
            state = tuple(np.where(alive, a, b) for a, b in zip(new, state))
        else:
            outputs[t], state = new[0], new
    return outputs, state


def recurrent(
    call: Call, cell: Cell, gates: int, default: tuple[str, ...], x: Array, w: Array, r: Array,
    b: Array | None = None, lengths: Array | None = None, initial: tuple[Array | None, ...] = (None,),
    peepholes: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """Y, Y_h (and Y_c) of a recurrent operator."""
    dtype, layout, direction = x.dtype, int(call.get("layout", 0)), call.text("direction", "forward")
    x, w, r = wide(x), wide(w), wide(r)
    if layout:
        x = x.swapaxes(0, 1)
    count, hidden = w.shape[0], r.shape[2]
    if count != (2 if direction == "bidirectional" else 1) or w.shape[1:] != (gates * hidden, x.shape[2]):
        raise ShapeError(f"X {x.shape}, W {w.shape} and R {r.shape} do not fit direction {direction!r}")
    steps, batch = x.shape[:2]
    ends = np.full(batch, steps) if lengths is None else np.clip(lengths.astype(np.int64), 0, steps)
    acts = _activations(call, default, count)
    outputs, states = [], []
    for d in range(count):
        layer = Layer(w[d], r[d], *_biases(b, d, gates * hidden, x.dtype), _peephole(peepholes, d),
                      acts[d * len(default) : (d + 1) * len(default)])  # fmt: skip
        state = tuple(_start(s, d, layout, batch, hidden, x.dtype) for s in initial)
        backward = direction == "reverse" or d == 1
        y, state = _scan(call, cell, layer, _reverse_rows(x, ends) if backward else x, state, ends)
        outputs.append(_reverse_rows(y, ends) if backward else y)
        states.append(state)
    y = np.stack(outputs, 1)
    ends_of = [np.stack([s[i] for s in states]) for i in range(len(initial))]
    if layout:
        y, ends_of = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in ends_of]
    return tuple(np.ascontiguousarray(v).astype(dtype, copy=False) for v in (y, *ends_of))


def _biases(b: Array | None, d: int, size: int, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    if b is None:
        return np.zeros(size, dtype), np.zeros(size, dtype)
    return wide(b)[d, :size], wide(b)[d, size:]


def _peephole(p: Array | None, d: int) -> Array | None:
    return None if p is None else wide(p)[d]


def _start(s: Array | None, d: int, layout: int, batch: int, hidden: int, dtype: np.dtype[np.generic]) -> Array:
    if s is None:
        return np.zeros((batch, hidden), dtype)
    return wide(s)[:, d] if layout else wide(s)[d]


@op("RNN")
def rnn(
    call: Call, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
    h: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """A simple recurrent layer."""
    return recurrent(call, _rnn_cell, 1, ("Tanh",), x, w, r, b, lengths, (h,))


@op("GRU")
def gru(
    call: Call, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
    h: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """A layer of gated recurrent units."""
    return recurrent(call, _gru_cell, 3, ("Sigmoid", "Tanh"), x, w, r, b, lengths, (h,))


@op("LSTM")
def lstm(
    call: Call, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
    h: Array | None = None, c: Array | None = None, p: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """A layer of long short-term memory."""
    return recurrent(call, _lstm_cell, 4, ("Sigmoid", "Tanh", "Tanh"), x, w, r, b, lengths, (h, c), p)
