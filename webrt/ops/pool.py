"""AveragePool, MaxPool and LpPool over any number of spatial axes: one invocation walks one window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_ITERATIONS, Builder, Info, op, require
from webrt.ops.taps import tap_params
from webrt.ops.vectors import IDENTITY, Epilogue, kind, map_through
from webrt.ops.windows import Axis, check_fit, windows

_LOWEST = {
    T.F32: "-3.4028234663852886e38",
    T.F16: "-65504.0",
    T.BF16: "-3.3895313892515355e38",
    T.I8: "-128",
    T.U8: "0u",
}


def pool_axes(n: Node) -> list[Axis]:
    """The windows of a pool's node; raises ShapeError for a kernel_shape of another rank."""
    shape = n.input(0).known_shape
    spatial = shape[1:-1] if n.channels_last else shape[2:]
    kernel = [int(k) for k in n.attr("kernel_shape") or []]
    if not spatial or len(kernel) != len(spatial):
        raise ShapeError(f"kernel_shape has {len(kernel)} integers, the input {len(spatial)} spatial axes")
    return windows(n, spatial, kernel)


def pool_shape(n: Node) -> list[Info]:
    x = n.input(0)
    shape = None if x.shape is None else (*x.shape[:2], *(a.out for a in pool_axes(n)))
    return [(x.dtype, shape), (T.I64, shape)][: len(n.outputs)]


def power(v: str, p: int) -> str:
    """|v|^p as WGSL; raises InvalidModel for a p below 1."""
    if p < 1:
        raise InvalidModel(f"p is {p}, it has to be positive")
    magnitude = f"abs({v})"
    return " * ".join([magnitude] * p) if p <= 4 else f"select(pow({magnitude}, {p}.0), 0.0, {v} == 0.0)"


def root(v: str, p: int) -> str:
    """v^(1/p) as WGSL for v ≥ 0."""
    if p <= 2:
        return v if p == 1 else f"sqrt({v})"
    return f"select(pow({v}, {1.0 / p!r}), 0.0, {v} == 0.0)"


def walk(axes: Sequence[Axis], visit: str, last: bool = False) -> str:
    """Statements that run `visit` for each element of output i's window that is no padding.

    There `at` is the element's index, `local` its index in its plane, and `x_k` its place along axis k. Before the
    loops `start_k` is where the window starts along axis k. `last`: elements of `p.inner` channels follow each place.
    """
    rank = len(axes)
    lines = ["var rest = i / p.inner; let channel = i - rest * p.inner;" if last else "var rest = i;"]
    for k in reversed(range(rank)):
        lines.append(f"let rest_{k} = rest / p.out_{k}; let to_{k} = rest - rest_{k} * p.out_{k}; rest = rest_{k};")
        lines.append(f"let start_{k} = i32(to_{k} * p.stride_{k} - p.pad_{k});")
    lines.append("let plane = rest * " + " * ".join(f"p.size_{k}" for k in range(rank)) + ";")
    for k, axis in enumerate(axes):
        above = f"line_{k - 1} * p.size_{k} + " if k else ""
        lines += [*_taps(k, axis), f"let line_{k} = {above}u32(x_{k});"]
    place = "(plane + local) * p.inner + channel" if last else "plane + local"
    lines.append(f"let local = line_{rank - 1}; let at = {place}; {visit}")
    return "\n".join([*lines, *("}" for _ in range(rank))])


def _taps(k: int, axis: Axis) -> list[str]:
    """The head of the loop over the elements `x_k` along axis k that are no padding."""
    if axis.dilation == 1:
        return [
            f"let end_{k} = min(start_{k} + i32(p.kernel_{k}), i32(p.size_{k}));",
            f"for (var x_{k} = max(start_{k}, 0); x_{k} < end_{k}; x_{k}++) {{",
        ]
    return [
        f"for (var tap_{k} = 0u; tap_{k} < p.kernel_{k}; tap_{k}++) {{",
        f"let x_{k} = start_{k} + i32(tap_{k} * p.dilation_{k});",
        f"if (x_{k} < 0 || x_{k} >= i32(p.size_{k})) {{ continue; }}",
    ]


def _check(b: Builder, axes: Sequence[Axis], dtype: DType) -> None:
    check_fit(b, axes)
    taps = math.prod(a.kernel for a in axes)
    if 2 * taps * dtype.per_word > MAX_ITERATIONS:
        raise UnsupportedOp(f"a window of {taps} elements in one invocation")


@op("MaxPool", shape=pool_shape)
def max_pool(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    x = n.input(0)
    require([x], *_LOWEST)
    axes = pool_axes(n)
    _check(b, axes, kind(x))
    if n.channels_last:
        less = "best < v || !found" if _lanes(x) == 1 else "(best < v) | vec4<bool>(!found)"
        head = f"var best = V({_LOWEST[kind(x)]}); var found = false;"
        _last(n, b, axes, (head, f"best = select(best, v, {less}); found = true;", "best"), "max_pool", epilogue)
        return
    keep = "let v = load_x(at); if (!found || v > best) { best = v; place = PLACE; found = true; }"
    place = _column_major(len(axes)) if n.attr("storage_order", 0) else "at"
    head = f"var best = X({_LOWEST[kind(x)]}); var place = 0u; var found = false;"
    text = f"{head}\n{walk(axes, keep.replace('PLACE', place))}\nreturn "
    params = tap_params(axes)
    if n.wants(0):
        map_through(b, n.output(0), text + "best;", epilogue, reads={"x": x}, params=params, name="max_pool")
    if n.wants(1):
        b.map(n.output(1), text + "i64_from_u32(place);", reads={"x": x}, params=params, name="max_pool_indices")


def _column_major(rank: int) -> str:
    """A window element's index where the first spatial axis runs fastest."""
    out = "u32(x_0)"
    unit = "p.size_0"
    for k in range(1, rank):
        out += f" + u32(x_{k}) * {unit}"
        unit += f" * p.size_{k}"
    return f"plane + {out}"


@op("AveragePool", since=7, shape=pool_shape)
def average_pool(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    x = n.input(0)
    require([x], *T.FLOATS)
    axes = pool_axes(n)
    _check(b, axes, kind(x))
    params, counted = tap_params(axes), ""
    if n.attr("count_include_pad", 0):
        params |= {f"after_{k}": a.after for k, a in enumerate(axes)}
        counted = "count = " + " * ".join(f"inside(start_{k}, {_ends(k)})" for k in range(len(axes))) + ";"
    if n.channels_last:
        texts = ("var sum = V(); var count = 0u;", "sum += v; count += 1u;", "sum / f32(max(count, 1u))")
        _last(n, b, axes, texts, "average_pool", epilogue, counted, params)
        return
    text = f"var sum = 0.0; var count = 0u;\n{walk(axes, 'sum += load_x(at); count += 1u;')}\n{counted}"
    text += "\nreturn sum / f32(max(count, 1u));"
    map_through(b, n.output(0), text, epilogue, reads={"x": x}, params=params, fns=[_INSIDE], name="average_pool")


def _lanes(x: Value) -> int:
    """How many channels an invocation takes."""
    return 4 if x.dtype == T.F32 and D.mod(x.known_shape[-1], 4) == 0 else 1


def _last(
    n: Node, b: Builder, axes: Sequence[Axis], texts: tuple[str, str, str], name: str, epilogue: Epilogue,
    then: str = "", params: Mapping[str, Dim | float] | None = None,
) -> None:  # fmt: skip
    """A pool of channels-last images: `texts` = what is before the window, at each element `v`, and the result."""
    head, visit, result = texts
    x, lanes = n.input(0), _lanes(n.input(0))
    kinds = "alias V = vec4<Out>;" if lanes == 4 else "alias V = Out;"
    walked = walk(axes, f"let v = {'x[at]' if lanes == 4 else 'load_x(at)'}; {visit}", last=True)
    words: dict[str, Dim | float] = {"inner": D.floordiv(x.known_shape[-1], lanes), **(params or tap_params(axes))}
    map_through(
        b, n.output(), f"{head}\n{walked}\n{then}\nreturn {result};", epilogue, reads={"x": x}, params=words,
        fns=[kinds, _INSIDE], vec={"x": lanes, "out": lanes}, name=name,
    )  # fmt: skip


_INSIDE = """fn inside(start: i32, end: i32, kernel: u32, dilation: u32) -> u32 {
  return min(kernel, u32(max(end - start + i32(dilation) - 1, 0)) / dilation);
}"""


def _ends(k: int) -> str:
    """The arguments of `inside`, which counts the taps that lie in the input or its padding."""
    return f"i32(p.size_{k} + p.after_{k}), p.kernel_{k}, p.dilation_{k}"


@op("LpPool", since=2, shape=pool_shape)
def lp_pool(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    x, p = n.input(0), int(n.attr("p", 2))
    require([x], *T.FLOATS)
    axes = pool_axes(n)
    _check(b, axes, kind(x))
    visit = f"let v = load_x(at); sum += {power('v', p)};"
    text = f"var sum = 0.0;\n{walk(axes, visit)}\nreturn {root('sum', p)};"
    map_through(b, n.output(0), text, epilogue, reads={"x": x}, params=tap_params(axes), name="lp_pool")
