"""Rows of a tensor and folds over them: what reductions, softmax and normalisations share.

A *row* is the set of elements that differ only along the reduced axes. Neighbouring axes of one kind are collapsed, so
the kernels' text depends only on the pattern of kept (k) and reduced (r) axes: "kr" for the last axis, "krk", "rkr", …
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Value
from webrt.lowering import Builder, Variant, grid
from webrt.ops.vectors import IDENTITY, Epilogue, map_through, through
from webrt.ops.view import element_type

SHORT = 512
"""Rows up to this length are folded by one invocation, however few they are."""
LONG = 8192
"""Rows up to this length are folded by one invocation where there are at least MANY of them."""
MANY = 64
STRAIGHT = 4
"""Rows up to this known length are folded without a loop."""
MAX_PARTS = 12_000
MAX_LENGTH = 2**29
"""Longest row: MAX_PARTS parts of fewer than lowering.MAX_ITERATIONS elements."""


@dataclass(frozen=True)
class Rows:
    """`dims` = ((reduced?, size), …) in memory order, collapsed, without axes of size 1."""

    dims: tuple[tuple[bool, Dim], ...]

    @staticmethod
    def of(shape: Sequence[Dim], axes: Iterable[int]) -> Rows:
        """The rows of a tensor of `shape` along `axes` (non-negative)."""
        reduced = set(axes)
        out: list[tuple[bool, Dim]] = []
        for k, size in enumerate(shape):
            kind = k in reduced
            if size == 1:
                continue
            if out and out[-1][0] == kind:
                out[-1] = (kind, D.mul(out[-1][1], size))
            else:
                out.append((kind, size))
        return Rows(tuple(out))

    @staticmethod
    def broadcast(shape: Sequence[Dim], small: Sequence[Dim]) -> Rows:
        """The rows that share one element of a tensor of shape `small` which broadcasts to `shape`."""
        lead = len(shape) - len(small)
        return Rows.of(shape, [k for k in range(len(shape)) if k < lead or small[k - lead] == 1])

    @property
    def count(self) -> Dim:
        """How many rows there are."""
        return D.prod(s for r, s in self.dims if not r)

    @property
    def length(self) -> Dim:
        """Elements in one row."""
        return D.prod(s for r, s in self.dims if r)

    @property
    def contiguous(self) -> bool:
        """Whether a row's elements are neighbours in memory."""
        return not any(r for r, _ in self.dims[:-1])

    @property
    def fours(self) -> int:
        """4 where rows are whole fours, in memory too; else 1."""
        return 4 if self.contiguous and D.mod(self.length, 4) == 0 and self.length != 0 else 1

    def vec(self, x: Value) -> int:
        """4 where rows of `x` can be read as vec4."""
        return self.fours if x.dtype is not None and x.dtype.bits == 32 else 1

    def sizes(self, prefix: str = "d") -> dict[str, Dim]:
        """The sizes of the collapsed axes as params: what `locate` and `index` need."""
        return {f"{prefix}{k}": size for k, (_, size) in enumerate(self.dims)}

    def params(self) -> dict[str, Dim]:
        """Sizes `d0` … and strides `t0` … of the collapsed axes, and the row's `length`: what `walk` needs."""
        steps = {f"t{k}": D.prod(s for _, s in self.dims[k + 1 :]) for k in range(len(self.dims))}
        return {"length": self.length, **self.sizes(), **steps}

    def walk(self) -> list[str]:
        """`row_base(row)`: the row's first element; `row_at(r)`: how far element r of a row is from it."""
        return [self._offset("row_base", kind=False), self._offset("row_at", kind=True)]

    def locate(self) -> list[str]:
        """`row_of(i)`: the row of element i; `place_of(i)`: its place in the row."""
        return [self.index("row_of"), self.index("place_of", kind=True)]

    def index(self, name: str, prefix: str = "d", *, kind: bool = False) -> str:
        """A function `name(i)`: element i's place among the kept (`kind`: the reduced) axes; uses `sizes(prefix)`."""
        lines = [f"fn {name}(n: u32) -> u32 {{", "var i = n;", "var o = 0u;", "var w = 1u;"]
        for k in reversed(range(len(self.dims))):
            size = f"p.{prefix}{k}"
            if self.dims[k][0] is kind:
                lines.append(f"o += {'i' if k == 0 else f'(i % {size})'} * w;")
                lines.append(f"w *= {size};")
            lines.append(f"i /= {size};")
        return "\n".join([*lines, "return o;", "}"])

    def _offset(self, name: str, *, kind: bool) -> str:
        chosen = [k for k, (r, _) in enumerate(self.dims) if r is kind]
        lines = [f"fn {name}(n: u32) -> u32 {{", "var i = n;", "var o = 0u;"]
        for k in reversed(chosen):
            lines.append(f"o += {'i' if k == chosen[0] else f'(i % p.d{k})'} * p.t{k};")
            lines.append(f"i /= p.d{k};")
        return "\n".join([*lines[: -1 if chosen else None], "return o;", "}"])


@dataclass(frozen=True)
class Fold:
    """A reduction as WGSL expressions.

    `step` over the accumulator `a`, an element `v` and the row's context `c` (f32); `merge` over two accumulators
    `a` and `v`; `finish` over `a` and `c`, giving the output's type. `acc` is the accumulator's type.
    """

    acc: DType
    first: str
    step: str
    merge: str
    finish: str = "a"
    use: tuple[str, ...] = ()
    params: Mapping[str, Dim | float] = field(default_factory=dict)


def fold_rows(
    b: Builder, out: Value, x: Value, rows: Rows, fold: Fold, *, context: Value | None = None,
    epilogue: Epilogue = IDENTITY, source: Epilogue = IDENTITY, name: str,
) -> None:  # fmt: skip
    """Writes one value per row. The `source`, if there is one, makes element i of x, which is not stored then. Few and
    long rows are split: partial results to a temporary, then merged. Where only the sizes of a run tell, so does the
    choice."""
    stored = {"x": x} if source == IDENTITY else dict(source.reads)
    reads = stored | ({"c": context} if context is not None else {})
    params = {**rows.params(), **fold.params, **source.params}
    use = tuple(dict.fromkeys((*(("int64",) if fold.acc in T.INTS64 else ()), *fold.use, *source.use)))
    parts, vec = split(rows.count, rows.length), {"x": rows.vec(x)} if source == IDENTITY else {}
    whole = f"let c = {_context(context, 'i')};\nreturn finish(fold(row_base(i), 0u, p.length, c), c);"
    made = [*_made(x, source), *rows.walk()]
    fns = [*made, *_functions(fold, vec.get("x", 1), rows.length), _finish(fold.finish)]
    if parts is None:
        map_through(b, out, whole, epilogue, reads=reads, params=params, fns=fns, use=use, vec=vec, name=name)
        return
    b.check(D.lt(rows.length, MAX_LENGTH), f"a reduction over more than {MAX_LENGTH} elements")
    once = at_once(rows.count, rows.length)
    partial = b.temp(fold.acc, (rows.count, D.select(once, 0, parts[0])))
    params |= {"parts": partial.known_shape[1], "chunk": parts[1]}
    b.map(
        partial,
        f"let row = i / p.parts;\nlet begin = (i % p.parts) * p.chunk;\nlet c = {_context(context, 'row')};\n"
        "return fold(row_base(row), begin, min(begin + p.chunk, p.length), c);",
        reads=reads, params=params, fns=[*made, *_functions(fold, 1)], use=use, name=f"{name}_part",
    )  # fmt: skip
    merge = (
        f"let c = {_context(context, 'i')};\nvar a = {fold.first};\n"
        "for (var k = 0u; k < p.parts; k += 1u) { a = merge(a, load_part(i * p.parts + k)); }\nreturn finish(a, c);"
    )
    last = _way(out, merge, [_acc(fold), _merge(fold), _finish(fold.finish)], use, epilogue)
    ways = [last] if once == 0 else [replace(_way(out, whole, fns, use, epilogue), vec=vec, when=once), last]
    bound = {"part": partial, **({} if once == 0 else stored), **({"c": context} if context is not None else {})}
    b.launch(
        *ways, reads={**bound, **epilogue.reads}, writes={"out": out},
        params={"n": out.elements, **params, **epilogue.params}, name=f"{name}_merge",
    )  # fmt: skip


def _made(x: Value, source: Epilogue) -> list[str]:
    """`load_x`, where x is made and not bound."""
    if source == IDENTITY:
        return []
    kind = element_type(x).wgsl
    return [f"alias X = {kind};", *source.fns, f"fn load_x(i: u32) -> X {{ {source.body} }}"]


def _way(out: Value, element: str, fns: Sequence[str], use: Sequence[str], epilogue: Epilogue) -> Variant:
    """One invocation per word of the output."""
    per_word = element_type(out).per_word
    text, more = through(epilogue, element)
    made = [*fns, *more, f"fn element(i: u32) -> Out {{\n{text}\n}}"]
    body = "map" if per_word == 1 else f"map_packed{per_word}"
    return Variant(
        body, grid(D.ceildiv(out.elements, per_word)), fns=made, use=tuple(dict.fromkeys((*use, *epilogue.use)))
    )


def at_once(count: Dim, length: Dim) -> Dim:
    """1 where one invocation folds a whole row, else 0."""
    many: Dim = 1 if not isinstance(count, int) and isinstance(length, int) else D.le(MANY, count)
    return D.maximum(D.le(length, SHORT), D.mul(many, D.le(length, LONG)))


def split(count: Dim, length: Dim) -> tuple[Dim, Dim] | None:
    """(parts of a row, elements of a part), or None where one invocation folds a whole row at all sizes."""
    if at_once(count, length) == 1:
        return None
    if isinstance(length, int):
        chunk: Dim = max(SHORT, math.isqrt(length), -(-length // MAX_PARTS))
    else:
        chunk = D.maximum(2 * SHORT, D.ceildiv(length, MAX_PARTS))
    return D.ceildiv(length, chunk), chunk


def _context(context: Value | None, row: str) -> str:
    return f"load_c({row})" if context is not None else "0.0"


def _acc(fold: Fold) -> str:
    return f"alias Acc = {fold.acc.wgsl};"


def _merge(fold: Fold) -> str:
    return f"fn merge(a: Acc, v: Acc) -> Acc {{ return {fold.merge}; }}"


def _finish(text: str) -> str:
    return f"fn finish(a: Acc, c: f32) -> Out {{ return {text}; }}"


def _functions(fold: Fold, vec: int, length: Dim | None = None) -> list[str]:
    """`fold(base, begin, end, c)`: elements begin … end of a row, in four chains (begin is a multiple of 4); of rows of
    a length that is known to be small all of them."""
    four = "let q = x[(base + r) >> 2u];" if vec == 4 else ""
    lanes = [f"q.{'xyzw'[k]}" if vec == 4 else f"load_x(base + row_at(r + {k}u))" for k in range(4)]
    chains = " ".join(f"a{k} = step(a{k}, {lane}, c);" for k, lane in enumerate(lanes))
    fns = [_acc(fold), _merge(fold), f"fn step(a: Acc, v: X, c: f32) -> Acc {{ return {fold.step}; }}"]
    head = "fn fold(base: u32, begin: u32, end: u32, c: f32) -> Acc {\n"
    if isinstance(length, int) and 0 < length <= STRAIGHT:
        steps = " ".join(f"a = step(a, {lane}, c);" for lane in lanes[:length])
        return [*fns, f"{head}  let r = 0u;\n  {four}\n  var a = {fold.first};\n  {steps}\n  return a;\n}}"]
    firsts = "".join(f"  var a{k} = {fold.first};\n" for k in range(4))
    return [
        *fns,
        f"{head}{firsts}  var r = begin;\n"
        + f"  for (; r + 4u <= end; r += 4u) {{ {four} {chains} }}\n"
        + "  for (; r < end; r += 1u) { a0 = step(a0, load_x(base + row_at(r)), c); }\n"
        + "  return merge(merge(a0, a1), merge(a2, a3));\n}",
    ]
