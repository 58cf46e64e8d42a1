"""What the cells of recurrent layers are made of: activations by name, weights in the order kernels read them.

Source: the ONNX texts of RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel
from webrt.ir import Node, Value
from webrt.lowering import Builder

BLOCK = 16
"""Elements of the state that one turn of a product's loop takes."""

USE = ("nan", "float", "hyperbolic", "activation")

# Lower-case name → (expression over v, a and b; default of a; of b); None where the function takes no such number.
_FUNCTIONS: dict[str, tuple[str, float | None, float | None]] = {
    "relu": ("select(v, 0.0, v < 0.0)", None, None),
    "tanh": ("f32_tanh(v)", None, None),
    "sigmoid": ("f32_sigmoid(v)", None, None),
    "affine": ("a * v + b", 1.0, 0.0),
    "leakyrelu": ("select(v, a * v, v < 0.0)", 0.01, None),
    "thresholdedrelu": ("select(0.0, v, v >= a)", 1.0, None),
    "scaledtanh": ("a * f32_tanh(b * v)", 1.0, 1.0),
    "hardsigmoid": ("f32_clip(a * v + b, 0.0, 1.0)", 0.2, 0.5),
    "elu": ("select(v, a * (exp(v) - 1.0), v < 0.0)", 1.0, None),
    "softsign": ("v / (1.0 + abs(v))", None, None),
    "softplus": ("f32_softplus(v)", None, None),
}


def activations(n: Node, default: Sequence[str], directions: int) -> tuple[list[str], dict[str, Dim | float]]:
    """WGSL functions `act_f(d, v)`, `act_g`, … of each direction d, and their parameters. Raises InvalidModel."""
    names = list(n.attr("activations") if "activations" in n.attrs else [*default] * directions)
    if n.op_type == "RNN":
        names = names[:directions]
    if len(names) != len(default) * directions:
        raise InvalidModel(f"{len(names)} activations for {directions} directions; {len(default)} are needed for each")
    alphas, betas = iter(n.attr("activation_alpha", [])), iter(n.attr("activation_beta", []))
    params: dict[str, Dim | float] = {"clip": float(n.attr("clip", 0.0))}
    texts = [_text(str(name), k, alphas, betas, params) for k, name in enumerate(names)]
    clip = "f32_clip(x, -bitcast<f32>(p.clip), bitcast<f32>(p.clip))" if n.attr("clip", 0.0) > 0 else "x"
    return [_function("fgh"[k], texts[k :: len(default)], clip) for k in range(len(default))], params


def _text(name: str, k: int, alphas: Iterator[float], betas: Iterator[float], params: dict[str, Dim | float]) -> str:
    """The expression of activation k; alpha and beta go, in order, to the functions that take them."""
    if name.lower() not in _FUNCTIONS:
        raise InvalidModel(f"the activation {name!r} is not one that ONNX defines")
    text, *defaults = _FUNCTIONS[name.lower()]
    lines = []
    for letter, given, default in zip("ab", (alphas, betas), defaults):
        if default is not None:
            params[f"{letter}{k}"] = float(next(given, default))
            lines.append(f"let {letter} = bitcast<f32>(p.{letter}{k});")
    return " ".join([*lines, f"return {text};"])


def _function(letter: str, texts: Sequence[str], clip: str) -> str:
    """One function for all directions; equal ones need no choice."""
    body = texts[-1] if len(set(texts)) == 1 else f"if (d == 0u) {{ {texts[0]} }} {texts[-1]}"
    return f"fn act_{letter}(d: u32, x: f32) -> f32 {{ let v = {clip}; {body} }}"


def packed(b: Builder, r: Value, gates: int, hidden: int) -> Value:
    """Recurrent weights [directions, gates · hidden, hidden] as [directions, blocks, gates, hidden, 4] of f32, zeros
    behind the last column; blocks of 4 columns, a multiple of BLOCK / 4 in number."""
    directions = r.known_shape[0]
    blocks = -(-hidden // BLOCK) * BLOCK // 4
    if r.const is not None:
        shaped = r.const.astype(np.float32).reshape(-1, gates, hidden, hidden)
        padded = np.pad(shaped, ((0, 0), (0, 0), (0, 0), (0, blocks * 4 - hidden)))
        return b.constant(padded.reshape(-1, gates, hidden, blocks, 4).transpose(0, 3, 1, 2, 4))
    out = b.temp(T.F32, (directions, blocks, gates, hidden, 4))
    text = """let row = (i / 4u) % p.rows;
let column = (i / (4u * p.rows)) % p.blocks * 4u + i % 4u;
if (column >= p.hidden) { return 0.0; }
return load_r((i / (4u * p.rows * p.blocks) * p.rows + row) * p.hidden + column);"""
    params = {"rows": gates * hidden, "blocks": blocks, "hidden": hidden}
    b.map(out, text, reads={"r": r}, params=params, name="recurrent_weights")
    return out


def products(name: str, gates: int, used: Sequence[int]) -> str:
    """`fn name(d, u, from)`: the products of unit u's `used` gates with the vector at `from` of shared_units."""
    lines = [
        f"fn {name}(d: u32, u: u32, start: u32) -> vec4<f32> {{",
        "var sums = vec4<f32>();",
        f"var at = d * p.blocks * {gates}u * p.hidden + u;",
        f"for (var k = 0u; k < p.blocks; k += {BLOCK // 4}u) {{",
    ]
    for q in range(BLOCK // 4):
        lines.append(f"let h{q} = units4(start + 4u * k + {4 * q}u);")
    for lane, g in zip("xyzw", used):
        terms = [f"dot(r[at + {q * gates + g}u * p.hidden], h{q})" for q in range(BLOCK // 4)]
        lines.append(f"sums.{lane} += {' + '.join(terms)};")
    lines += [f"at += {BLOCK // 4 * gates}u * p.hidden;", "}", "return sums;", "}"]
    return "\n".join(lines)


def bias_sum(b: Builder, bias: Value, gates: int, hidden: int, late: int) -> Value:
    """The input's and the state's biases in one, [directions, gates · hidden] of f32; the last `late` gates without
    the state's."""
    size, joint = gates * hidden, (gates - late) * hidden
    if bias.const is not None:
        wide = bias.const.astype(np.float32)
        summed = wide[:, :size].copy()
        summed[:, :joint] += wide[:, size : size + joint]
        return b.constant(summed)
    out = b.temp(T.F32, (bias.known_shape[0], size))
    text = """let at = i / p.size * 2u * p.size + i % p.size;
if (i % p.size < p.joint) { return load_bias(at) + load_bias(at + p.size); }
return load_bias(at);"""
    b.map(out, text, reads={"bias": bias}, params={"size": size, "joint": joint}, name="recurrent_bias")
    return out


def initial_state(
    b: Builder, given: Sequence[Value | None], directions: int, batch: Dim, hidden: int, layout: int
) -> Value:
    """[states, directions, batch, hidden] of f32: what is given, [directions, batch, hidden] each or, where `layout` is
    1, [batch, directions, hidden]; zeros where nothing is."""
    out = b.temp(T.F32, (len(given), directions, batch, hidden))
    params = {"hidden": hidden, "batch": batch, "directions": directions}
    lines = ["let part = i / (p.hidden * p.batch * p.directions);", f"let j = {_place(layout)};"]
    reads = {f"s{k}": v for k, v in enumerate(given) if v is not None}
    lines += [f"if (part == {name[1:]}u) {{ return load_{name}(j); }}" for name in reads]
    b.map(out, "\n".join([*lines, "return 0.0;"]), reads=reads, params=params, name="recurrent_state")
    return out


def final_state(b: Builder, out: Value, state: Value, part: int, layout: int) -> None:
    """State number `part` in the layout of the outputs."""
    _, directions, batch, hidden = state.known_shape
    params = {"hidden": hidden, "batch": batch, "directions": directions, "first": part}
    at = _place(layout, back=True)
    text = f"return load_state(p.first * p.hidden * p.batch * p.directions + {at});"
    b.map(out, text, reads={"state": state}, params=params, name="recurrent_end")


def _place(layout: int, back: bool = False) -> str:
    """Element i of [directions, batch, hidden] in [batch, directions, hidden] (`back`: the other way)."""
    j = "i % (p.hidden * p.batch * p.directions)"
    if not layout:
        return j
    inner, outer = ("p.directions", "p.batch") if back else ("p.batch", "p.directions")
    lead = f"(({j}) / p.hidden)"
    return f"(({lead} % {inner}) * {outer} + {lead} / {inner}) * p.hidden + i % p.hidden"


def check_weights(b: Builder, n: Node, gates: int, hidden: int, directions: int) -> None:
    """W and R must fit the input, the hidden size and the number of directions. Raises ShapeError."""
    width = n.input(0).known_shape[2]
    for k, columns in ((1, width), (2, hidden)):
        for have, need in zip(n.input(k).known_shape, (directions, gates * hidden, columns)):
            b.check(D.eq(have, need), f"{'WR'[k - 1]} has a size of {have} where {need} is needed")
