"""The functions by which the kernels of a matrix product load from their operands and store."""

from __future__ import annotations

from dataclasses import dataclass

from webrt.dtypes import DType
from webrt.ops.panels import PANEL
from webrt.ops.vectors import load4, store_fours


@dataclass(frozen=True)
class Lines:
    """How an operand is read: in aligned `fours` of a line, or element by element; its lines are the columns of its
    matrices where it is `turned`. `panels`: of every 16 columns, or the last ones, all rows lie one after another."""

    fours: bool
    turned: bool = False
    panels: bool = False

    @property
    def four(self) -> int:
        """What four elements of a line are in what its places are counted in."""
        return 1 if self.fours else 4

    @property
    def unit(self) -> str:
        """What turns a number of elements into that of places."""
        return " / 4u" if self.fours else ""


def tile_loads(a_type: DType, a: Lines, b_type: DType, b: Lines) -> list[str]:
    """`load4_a` and `load4_b`, or where b is not turned `columns_b`, by places that count fours where lines do."""
    b_loads = [load4("b", b_type, b.fours, True)] if b.turned else _load_columns(b_type, b.fours, True)
    return [load4("a", a_type, a.fours, True), *b_loads]


def fetches_a(dtype: DType, a: Lines) -> list[str]:
    """`four_a(at, row, k)`: steps k … k+3 of a row; `place_a(local)`: which of 64 rows and of 4 fours of steps an
    invocation of a workgroup fetches, so that neighbours read neighbours."""
    load, body = [load4("a", dtype, a.fours)], "return load4_a(at + row * p.a_line + k);"
    if a.turned:
        load, body = [], f"let i = at + row + k * p.a_line; return {_apart('a')};"
    four = f"fn four_a(at: u32, row: u32, k: u32) -> vec4<A> {{ {body} }}"
    return [_place("a", 64, 4, a.turned), *load, four]


def fetches_b(dtype: DType, b: Lines) -> list[str]:
    """`four_b(at, k, t)`: of step k the columns t, which counts as `columns_b` does; `place_b(local)`: which of 16
    steps and of 16 fours of columns an invocation of a workgroup fetches."""
    load, body = _load_columns(dtype, b.fours, False), "return columns_b(at + k * p.b_line, t, 16u);"
    if b.turned:
        load, body = [], f"let i = at + k + 4u * t * p.b_line; return {_apart('b')};"
    elif b.panels:
        first, inner = f"(t & {2**32 - PANEL}u)", f"(t & {PANEL - 1}u)"
        four = f"{first} * p.k_last + k * min({PANEL}u, p.b_line / 4u - {first}) + {inner}"
        load, body = [load4("b", dtype, True, True)], f"return load4_b({four});"
    return [place_b(b.turned), *load, f"fn four_b(at: u32, k: u32, t: u32) -> vec4<B> {{ {body} }}"]


def place_b(turned: bool = False) -> str:
    """The function of that name that `fetches_b` tells of."""
    return _place("b", 16, 16, turned)


def _place(x: str, first: int, second: int, turned: bool) -> str:
    """Which of `first` and of `second` it is; the first one counts fastest where lines run along it."""
    places = f"local % {first}u, local / {first}u" if turned else f"local / {second}u, local % {second}u"
    return f"fn place_{x}(local: u32) -> vec2<u32> {{ return vec2<u32>({places}); }}"


def _apart(x: str) -> str:
    """Four elements of neighbouring lines, from i on."""
    return f"vec4<{x.upper()}>({', '.join(f'load_{x}(i + {k}u * p.{x}_line)' for k in range(4))})"


def _load_columns(dtype: DType, aligned: bool, fours: bool) -> list[str]:
    """`columns_b(row, t, lanes)`: of the row that starts at `row` columns 4t … 4t+3, or four that are `lanes` apart.
    `fours`: where rows are aligned, `row` counts fours."""
    if aligned:
        at = "t" if fours else "4u * t"
        body = f"return load4_b(row + {at});"
        return [
            load4("b", dtype, True, fours),
            f"fn columns_b(row: u32, t: u32, lanes: u32) -> vec4<B> {{ {body} }}",
        ]
    value = ", ".join(f"load_b(i + {k}u * lanes)" for k in range(4))
    return [f"fn columns_b(row: u32, t: u32, lanes: u32) -> vec4<B> {{ let i = row + t; return vec4<B>({value}); }}"]


def stores(dtype: DType, fours: bool, apart: bool, part: bool) -> list[str]:
    """`store4(start, t, lanes, v)`: columns of the row that starts at `start`: 4t … 4t+3, or `apart`, as `columns_b`
    has them. `part`: b's columns are some of the output's."""
    head = "fn store4(start: u32, t: u32, lanes: u32, v: vec4<Out>)"
    row = "start + p.column" if part else "start"
    if fours:
        body = f"if (4u * t < p.width) {{ let i = {row} + 4u * t; let r = epilogue4(v, i); {store_fours(dtype)} }}"
        return [f"{head} {{ {body} }}"]
    column = "t + {k}u * lanes" if apart else "4u * t + {k}u"
    store = f"let i = {row} + at; out[i] = epilogue(v, i);"
    one = f"fn store1(start: u32, at: u32, v: Out) {{ if (at < p.width) {{ {store} }} }}"
    calls = " ".join(f"store1(start, {column.format(k=k)}, v.{c});" for k, c in enumerate("xyzw"))
    return [one, f"{head} {{ {calls} }}"]
