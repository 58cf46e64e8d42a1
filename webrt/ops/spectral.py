"""DFT, STFT and MelWeightMatrix.

A transform is a product with its matrix, or, where that would be large, a loop per element. Angles are reduced exactly
before cosine and sine: (k·n mod length) / length of a turn, quarter turns apart. Source: the ONNX operator texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import MAX_ITERATIONS, Builder, Info, normalize_axis, op, require
from webrt.ops.product import Product, product
from webrt.ops.vectors import widened
from webrt.ops.view import View, move

MAX_MATRIX = 1 << 21
"""Elements of a transform's matrix that a plan may carry."""


@dataclass(frozen=True)
class Transform:
    """Rows of `given` numbers (of 1 or 2 `parts`) → `count` numbers (of 2 parts, or 1 where `real`) of the transform of
    `length` places. `real`: the inverse of a transform of real numbers, of which the first half is given."""

    given: Dim
    parts: int
    length: Dim
    count: Dim
    inverse: bool
    real: bool = False

    @property
    def out_parts(self) -> int:
        return 1 if self.real else 2


def _dft(n: Node) -> tuple[Transform, int]:
    shape = n.input(0).known_shape
    if len(shape) < 2:
        raise ShapeError(f"DFT of rank {len(shape)}, at least 2 is needed")
    given = int(n.const(2).flat[0]) if n.opset >= 20 and n.has(2) else n.attr("axis", -2)
    axis, parts = normalize_axis(given, len(shape)), _parts(shape[-1])
    if axis == len(shape) - 1:
        raise ShapeError("the last axis holds real and imaginary parts and cannot be transformed")
    inverse, half = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    real = inverse and half
    length = n.dims(1)[0] if n.has(1) else D.mul(2, shape[axis] - 1) if real else shape[axis]
    count = D.floordiv(length, 2) + 1 if half and not inverse else length
    return Transform(shape[axis], parts, length, count, inverse, real), axis


def _dft_shape(n: Node) -> list[Info]:
    t, axis = _dft(n)
    shape = list(n.input(0).known_shape)
    shape[axis], shape[-1] = t.count, t.out_parts
    return [(n.input(0).dtype, tuple(shape))]


def _parts(size: Dim) -> int:
    if not isinstance(size, int):
        raise UnsupportedOp("whether the numbers are real or complex is not known before the run")
    if size not in (1, 2):
        raise InvalidModel(f"the last axis has size {size}; it must be 1 (real) or 2 (complex)")
    return size


@op("DFT", since=17, shape=_dft_shape)
def dft(n: Node, b: Builder) -> None:
    x, (t, axis) = n.input(0), _dft(n)
    require([x], *T.FLOATS)
    shape = x.known_shape
    order = [k for k in range(x.rank - 1) if k != axis]
    lead = tuple(shape[k] for k in order)
    rows = b.temp(x.dtype or T.F32, (*lead, t.given, t.parts))
    move(b, rows, x, View.of(shape).permute([*order, axis, x.rank - 1]))
    result = b.temp(x.dtype or T.F32, (*lead, t.count, t.out_parts))
    transform(b, result, rows, t, D.prod(lead))
    back = [order.index(k) if k != axis else len(order) for k in range(x.rank - 1)]
    move(b, n.output(), result, View.of(result.known_shape).permute([*back, x.rank - 1]))


def _stft(n: Node) -> tuple[Transform, Dim, Dim]:
    """The transform, the step from frame to frame, and how many frames there are."""
    shape, hop = n.input(0).known_shape, n.dims(1)[0]
    if len(shape) not in (2, 3):
        raise ShapeError(f"STFT of a signal of rank {len(shape)}, 3 is needed")
    parts = _parts(shape[2]) if len(shape) == 3 else 1
    length = n.dims(3)[0] if n.has(3) else n.input(2).elements if n.has(2) else shape[1]
    count = D.floordiv(length, 2) + 1 if n.attr("onesided", 1) else length
    return Transform(length, parts, length, count, False), hop, D.floordiv(shape[1] - length, hop) + 1


def _stft_shape(n: Node) -> list[Info]:
    t, _, frames = _stft(n)
    return [(n.input(0).dtype, (n.input(0).known_shape[0], frames, t.count, 2))]


@op("STFT", since=17, shape=_stft_shape)
def stft(n: Node, b: Builder) -> None:
    """Frames, weighed by the window, then one transform of all of them."""
    signal, (t, hop, frames) = n.input(0), _stft(n)
    require([signal, n.input(2) if n.has(2) else None], *T.FLOATS)
    batch, size = signal.known_shape[:2]
    if n.has(2):
        b.check(
            D.eq(n.input(2).elements, t.length), f"the window has {n.input(2).elements} elements, a frame {t.length}"
        )
    b.check(D.lt(0, hop), f"frame_step is {D.brief(hop)}, it must be positive")
    b.check(D.le(t.length, size), f"frames of {t.length} do not fit a signal of {size}")
    rows = b.temp(T.F32, (batch, frames, t.length, t.parts))
    text = """let part = i % p.parts;
let place = (i / p.parts) % p.length;
let frame = (i / (p.parts * p.length)) % p.frames;
let at = (i / (p.parts * p.length * p.frames) * p.size + frame * p.hop + place) * p.parts + part;
return load_signal(at)"""
    reads = {"signal": signal} | ({"window": n.input(2)} if n.has(2) else {})
    params = {"parts": t.parts, "length": t.length, "frames": frames, "size": size, "hop": hop}
    text += " * load_window(place);" if n.has(2) else ";"
    b.map(rows, text, reads=reads, params=params, name="stft_frames")
    transform(b, n.output(), rows, t, D.mul(batch, frames))


def _mel_shape(n: Node) -> list[Info]:
    bins, length, *_ = (n.const(k) for k in range(5))
    return [(dtype_of(n.attr("output_datatype")), (int(length.flat[0]) // 2 + 1, int(bins.flat[0])))]


@op("MelWeightMatrix", since=17, shape=_mel_shape)
def mel_weight_matrix(n: Node, b: Builder) -> None:
    """Once its five numbers are known it is a constant; this says so of those that are not."""
    raise UnsupportedOp("a MelWeightMatrix that is not folded")


def transform(b: Builder, out: Value, rows: Value, t: Transform, count: Dim) -> None:
    """Writes the transform of `count` rows."""
    width, wanted = D.mul(t.given, t.parts), D.mul(t.count, t.out_parts)
    sizes = (t.given, t.length, t.count)
    if all(isinstance(d, int) for d in sizes) and 0 < D.mul(width, wanted) <= MAX_MATRIX:  # type: ignore[operator]
        matrix = b.constant(_matrix(t, *(int(str(d)) for d in sizes)))
        product(b, Product(count, wanted, width), widened(b, rows), matrix, out, name="dft")
        return
    b.check(D.lt(t.length, MAX_ITERATIONS), f"a transform of more than {MAX_ITERATIONS - 1} places")
    turns = b.temp(T.F32, (t.length, 2))
    b.map(turns, _TURN, params={"length": t.length}, use=("int64", "nan", "float", "trig"), name="dft_turns")
    used = D.minimum(t.given, D.floordiv(t.length, 2) + 1 if t.real else t.length)
    params = {"length": t.length, "count": t.count, "used": used, "given": t.given}
    reads = {"x": rows, "turns": turns}
    b.map(out, _element(t), reads=reads, params=params, name="dft_element")


_TURN = """let quarters = (i / 2u) * 4u;
let rest = f32(quarters % p.length) / f32(p.length) * 1.5707963267948966;
let quarter = (quarters / p.length + select(0u, 3u, (i & 1u) == 1u)) % 4u;
let value = select(f32_cos(rest), f32_sin(rest), (quarter & 1u) == 1u);
return select(value, -value, quarter == 1u || quarter == 2u);"""
"""cos for even i, sin for odd i; sin is cos a quarter turn earlier."""


def _element(t: Transform) -> str:
    """One invocation per output number: Σ (re + i·im)(cos ± i·sin)."""
    at, sign = ("at + 2u * n", "" if t.inverse else "-") if t.parts == 2 else ("at + n", "" if t.inverse else "-")
    imaginary = f"load_x({at} + 1u)" if t.parts == 2 else "0.0"
    weight = "select(2.0, 1.0, n == 0u || 2u * n == p.length)" if t.real else "1.0"
    scale = " / f32(p.length)" if t.inverse else ""
    part = "false" if t.real else "(i & 1u) == 1u"
    return f"""let k = (i / {t.out_parts}u) % p.count;
let at = i / ({t.out_parts}u * p.count) * p.given * {t.parts}u;
var turn = 0u;
var sum = 0.0;
for (var n = 0u; n < p.used; n++) {{
  let c = load_turns(2u * turn);
  let s = {sign}load_turns(2u * turn + 1u);
  let re = load_x({at});
  let im = {imaginary};
  sum += {weight} * select(re * c - im * s, re * s + im * c, {part});
  turn += k;
  if (turn >= p.length) {{ turn -= p.length; }}
}}
return sum{scale};"""


def _matrix(t: Transform, given: int, length: int, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[given · parts, count · out_parts] of f32."""
    places = np.arange(given)
    angle = 2 * np.pi * ((np.outer(places, np.arange(count))) % length) / length
    if not t.inverse:
        angle = -angle
    used = places < (length // 2 + 1 if t.real else length)
    weight = np.where(used, (1 / length) if t.inverse else 1.0, 0.0)
    if t.real:
        weight = weight * np.where((places == 0) | (2 * places == length), 1, 2)
    c, s = np.cos(angle) * weight[:, None], np.sin(angle) * weight[:, None]
    real = [c, -s] if t.real else [np.stack([c, s], -1), np.stack([-s, c], -1)]
    return np.stack(real[: t.parts], 1).reshape(given * t.parts, -1).astype(np.float32)
