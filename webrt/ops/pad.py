"""Pad, all modes, and CenterCropPad.

Negative pads cut first: what is left of an axis is its window, and reflect, edge and wrap read inside the window.
A reflection wider than the window reflects again, as numpy.pad does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, normalize_axis, op, strides
from webrt.ops.args import ints, sizes
from webrt.ops.view import RAW, View, bits_of, coordinates, element_type, move, unit, unit_type

# Coordinate `s` inside the window of size `w` from `s`, which counts from the window's start.
_MODES = {
    "constant": "",
    "edge": "s = clamp(s, 0, w - 1);",
    "reflect": "let e = max(2 * (w - 1), 1); s = ((s % e) + e) % e; s = min(s, e - s);",
    "wrap": "s = ((s % w) + w) % w;",
}


@dataclass(frozen=True)
class Margin:
    """One axis of a result: `size` elements, the window's first one at `before`; the window has `width` elements of the
    source, from element `start` on."""

    size: Dim
    before: Dim
    start: Dim
    width: Dim

    @property
    def padded(self) -> bool:
        return not (self.before == 0 and self.size == self.width)


def margin(size: Dim, before: Dim, after: Dim) -> Margin:
    """The axis of `size` with pads, each negative where it cuts. Raises ShapeError where more is cut than there is."""
    total = D.add(size, D.add(before, after))
    if isinstance(total, int) and total < 0:
        raise ShapeError(f"pads {before} and {after} cut more than an axis of {size}")
    start = D.maximum(D.mul(before, -1), 0)
    width = D.sub(D.sub(size, start), D.maximum(D.mul(after, -1), 0))
    return Margin(total, D.maximum(before, 0), start, width)


def pad_with(b: Builder, out: Value, x: Value, margins: list[Margin], mode: str, value: Value | None) -> None:
    """Writes x inside its margins to out; `value` (one element, zero where None) fills them in mode constant."""
    if mode not in _MODES:
        raise UnsupportedOp(f"mode {mode!r}")
    if not any(m.padded for m in margins):
        view = View.of(x.known_shape)
        for axis, m in enumerate(margins):
            view = view.cut(axis, m.start, m.width)
        move(b, out, x, view, "pad")
        return
    bits = bits_of(x)
    axes = _collapsed(margins, strides(x.known_shape))
    last = axes[-1]
    k = 1
    if value is None and not last[0].padded:
        k = unit(bits, (last[0].size, *(D.mul(m.start, s) for m, s in axes), *(s for _, s in axes[:-1])))
    kind, vec = unit_type(bits * k)
    text, params = coordinates([*(m.size for m, _ in axes[:-1]), D.floordiv(last[0].size, k)])
    text += "var at = 0u;\n"
    filler = "vec4<Out>()" if vec == 4 else "load_value(0u)" if value is not None else "Out()"
    for a, (m, s) in enumerate(axes):
        unit_here = k if a == len(axes) - 1 else 1
        params |= {f"s{a}": D.floordiv(s, k) if unit_here == 1 else s, f"o{a}": D.floordiv(m.start, unit_here)}
        params |= {f"b{a}": m.before, f"w{a}": m.width} if m.padded else {}
        text += _axis_text(a, m.padded, mode, filler)
    text += "return x[at];" if vec == 4 else "return load_x(at);"
    types = {"x": kind, "out": kind} | ({} if value is None else {"value": RAW[bits]})
    reads = {"x": x} | ({} if value is None else {"value": value})
    b.map(out, text, reads=reads, params=params, as_type=types, vec={"x": vec, "out": vec}, name=f"pad_{mode}")


def _axis_text(a: int, padded: bool, mode: str, filler: str) -> str:
    if not padded:
        return f"at += (c{a} + p.o{a}) * p.s{a};\n"
    if mode == "constant":
        inside = f"if (c{a} - p.b{a} >= p.w{a}) {{ return {filler}; }}"
        return f"{inside}\nat += (c{a} - p.b{a} + p.o{a}) * p.s{a};\n"
    place = f"var s = i32(c{a} - p.b{a}); let w = i32(p.w{a}); {_MODES[mode]}"
    return f"{{ {place} at += (u32(s) + p.o{a}) * p.s{a}; }}\n"


def _collapsed(margins: list[Margin], steps: list[Dim]) -> list[tuple[Margin, Dim]]:
    """Neighbouring axes that are taken whole become one."""
    out: list[tuple[Margin, Dim]] = []
    for m, s in zip(margins, steps):
        if out and not out[-1][0].padded and not m.padded and m.start == 0 and out[-1][1] == D.mul(m.size, s):
            before = out[-1][0]
            size = D.mul(before.size, m.size)
            out[-1] = (Margin(size, 0, D.mul(before.start, m.size), size), s)
        else:
            out.append((m, s))
    return out


def _axes(n: Node, index: int) -> list[int]:
    rank = n.input(0).rank
    given = ints(n, "axes", index)
    return list(range(rank)) if given is None else [normalize_axis(a, rank) for a in given]


def _pad_margins(n: Node) -> list[Margin]:
    shape, pads, axes = n.input(0).known_shape, sizes(n, "pads", 1), _axes(n, 3)
    if pads is None or len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise InvalidModel(f"pads {pads} do not fit axes {axes}")
    begin, end = dict(zip(axes, pads)), dict(zip(axes, pads[len(axes) :]))
    return [margin(d, begin.get(a, 0), end.get(a, 0)) for a, d in enumerate(shape)]


def _crop_margins(n: Node) -> list[Margin]:
    shape, target, axes = n.input(0).known_shape, n.dims(1), _axes(n, 2)
    if len(target) != len(axes):
        raise InvalidModel(f"the target {list(target)} does not fit axes {axes}")
    wanted = dict(zip(axes, target))
    out = []
    for a, d in enumerate(shape):
        t = wanted.get(a, d)
        cut, grown = D.mul(D.floordiv(D.sub(d, t), 2), -1), D.floordiv(D.sub(t, d), 2)
        before = D.select(D.lt(t, d), cut, grown)
        out.append(margin(d, before, D.sub(D.sub(t, d), before)))
    return out


def _fill_value(n: Node, b: Builder) -> Value | None:
    if n.has(2):
        value = n.input(2)
        return None if value.const is not None and not np.any(value.const) else value
    x, number = n.input(0), n.attr("value")
    if not number:
        return None
    return b.constant(np.full((1,), number, dtype=element_type(x).name), x.dtype)


@op("Pad", since=2, shape=lambda n: [(n.input(0).dtype, tuple(m.size for m in _pad_margins(n)))])
def pad(n: Node, b: Builder) -> None:
    x, margins, mode = n.input(0), _pad_margins(n), str(n.attr("mode", "constant"))
    for a, m in enumerate(margins):
        b.check(D.le(0, m.size), f"Pad: pads leave {D.brief(m.size)} elements of axis {a}")
        if mode != "constant" and m.padded:
            b.check(D.lt(0, m.width), f"Pad: axis {a} is empty, there is nothing to {mode}")
    pad_with(b, n.output(), x, margins, mode, _fill_value(n, b) if mode == "constant" else None)


@op("CenterCropPad", since=18, shape=lambda n: [(n.input(0).dtype, tuple(m.size for m in _crop_margins(n)))])
def center_crop_pad(n: Node, b: Builder) -> None:
    pad_with(b, n.output(), n.input(0), _crop_margins(n), "constant", None)
