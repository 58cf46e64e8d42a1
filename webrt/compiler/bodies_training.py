"""The optimizers of ai.onnx.preview.training in operators of ONNX. Source: the operators' texts."""

from __future__ import annotations

from webrt.compiler.body_text import Lines, Writer
from webrt.ir import Node


def _number(name: str, like: str, value: str = "") -> list[str]:
    """`name` = a float attribute of the caller (or a literal) in the type of `like`."""
    literal = f"value_float = {value}" if value else f"value_float: float = @{name}"
    return [f"{name}_wide = Constant <{literal}> ()", f"{name} = CastLike ({name}_wide, {like})"]


def _start(n: Node, *names: str) -> list[str]:
    """The rate R, the step count T and the attributes in the type of the tensors; whether T is above 0."""
    lines = ["rate = CastLike (R, inputs0)", "steps = CastLike (T, inputs0)"]
    lines += ["nought = Sub (steps, steps)", "later = Greater (steps, nought)", *_number("one", "inputs0", "1.0")]
    return [*lines, *(line for name in names for line in _number(name, "inputs0"))]


def _gradient(i: int, x: str, gradient: str) -> list[str]:
    """r{i} = norm_coefficient · X + G."""
    return [f"d{i} = Mul (norm_coefficient, {x})", f"r{i} = Add (d{i}, {gradient})"]


def _momentum(n: Node) -> Lines:
    count = (len(n.inputs) - 2) // 3
    lines = _start(n, "alpha", "beta", "norm_coefficient")
    lines.append("share = Where (later, beta, one)")
    for i in range(count):
        x, g, v = (f"inputs{i + k * count}" for k in range(3))
        new = f"outputs{i + count}"
        lines += [
            *_gradient(i, x, g),
            f"v{i} = Mul (alpha, {v})",
            f"w{i} = Mul (share, r{i})",
            f"{new} = Add (v{i}, w{i})",
        ]
        step = new
        if n.attr("mode") == "nesterov":
            lines += [f"a{i} = Mul (alpha, {new})", f"n{i} = Add (r{i}, a{i})"]
            step = f"n{i}"
        lines += [f"s{i} = Mul (rate, {step})", f"outputs{i} = Sub ({x}, s{i})"]
    return lines


def _adagrad(n: Node) -> Lines:
    count = (len(n.inputs) - 2) // 3
    lines = _start(n, "decay_factor", "epsilon", "norm_coefficient")
    lines += ["decay = Mul (steps, decay_factor)", "slower = Add (one, decay)", "r = Div (rate, slower)"]
    for i in range(count):
        x, g, h = (f"inputs{i + k * count}" for k in range(3))
        new = f"outputs{i + count}"
        lines += [*_gradient(i, x, g), f"q{i} = Mul (r{i}, r{i})", f"{new} = Add ({h}, q{i})"]
        lines += [f"k{i} = Sqrt ({new})", f"e{i} = Add (k{i}, epsilon)", f"t{i} = Mul (r, r{i})"]
        lines += [f"s{i} = Div (t{i}, e{i})", f"outputs{i} = Sub ({x}, s{i})"]
    return lines


def _adam(n: Node) -> Lines:
    count = (len(n.inputs) - 2) // 4
    lines = _start(n, "alpha", "beta", "epsilon", "norm_coefficient", "norm_coefficient_post")
    for name in ("alpha", "beta"):
        lines += [f"{name}_rest = Sub (one, {name})", f"{name}_power = Pow ({name}, steps)"]
        lines.append(f"{name}_bias = Sub (one, {name}_power)")
    lines += ["root = Sqrt (beta_bias)", "bent = Mul (rate, root)", "safe = Where (later, alpha_bias, one)"]
    lines += [
        "divided = Div (bent, safe)",
        "r = Where (later, divided, rate)",
        "kept = Sub (one, norm_coefficient_post)",
    ]
    for i in range(count):
        x, g, v, h = (f"inputs{i + k * count}" for k in range(4))
        first, second = f"outputs{i + count}", f"outputs{i + 2 * count}"
        lines += [*_gradient(i, x, g), f"v{i} = Mul (alpha, {v})", f"w{i} = Mul (alpha_rest, r{i})"]
        lines += [f"{first} = Add (v{i}, w{i})", f"q{i} = Mul (r{i}, r{i})", f"h{i} = Mul (beta, {h})"]
        lines += [f"u{i} = Mul (beta_rest, q{i})", f"{second} = Add (h{i}, u{i})", f"k{i} = Sqrt ({second})"]
        lines += [f"e{i} = Add (k{i}, epsilon)", f"t{i} = Mul (r, {first})", f"s{i} = Div (t{i}, e{i})"]
        lines += [f"y{i} = Sub ({x}, s{i})", f"outputs{i} = Mul (kept, y{i})"]
    return lines


TRAINING: dict[str, Writer] = {"Momentum": _momentum, "Adagrad": _adagrad, "Adam": _adam}
