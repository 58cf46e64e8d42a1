"""The unrolled text of attention in one pass over the keys: rows of queries, their results and sums in registers.

Four keys at a time make a matrix: what a row of queries gives with it are four logits, and their weights times the
values go into the row's result, after that was scaled to the largest logit so far (https://arxiv.org/abs/1805.02867).
What costs is to bring keys and values into a lane: several rows use each, and the lanes of a subgroup load them for
each other. In a quad each lane loads one key of four, and swaps bring it the other three at a fraction of a broadcast's
cost, in an order of its own: key lane ^ i comes i-th. A software adapter reads a parameter as slowly as it adds up ten
vectors, so those that loops need are read before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webrt.ops.quads import LANES, ORDER, SWAPS
from webrt.ops.vectors import in_turn

LOW = -3.4028234663852886e38
"""What no finite logit is below: -inf has the weight 0 beside it."""


@dataclass(frozen=True)
class OnlineTile:
    """`rows` of an invocation, heads of `head` fours in queries and `width` in values; `lanes` of a subgroup that load
    keys for each other (0: each for itself). `single`: one key at a time, for less text; `shared`: so many keys at a
    time from a workgroup's memory, for one row. `rolled`: the epilogue of four keys is in the text once. Addresses
    count fours."""

    rows: int
    head: int
    width: int
    lanes: int = 0
    single: bool = False
    shared: int = 0
    rolled: bool = False

    @property
    def quads(self) -> bool:
        return self.lanes == LANES

    @property
    def turns(self) -> int:
        """Turns of loops for four keys, with those that a long epilogue takes."""
        return 4 if self.single else 1 + (5 * self.rows if self.rolled else 0)

    @property
    def fn(self) -> str:
        """`fn tile(z, row, step, part, lane)`: rows `row`, `row` + `step` … of key head z over span `part` of keys."""
        return "\n".join(
            [
                "fn tile(z: u32, row: u32, step: u32, part: u32, lane: u32) {",
                "let n = z / p.groups; let g = z - n * p.groups; let m = p.m; let keys = p.n;",
                "let first = part * p.span; let last = min(first + p.span, keys);",
                *self._start(),
                "let k_start = p.k_at + n * p.k_n + g * p.k_h; let v_start = p.v_at + n * p.v_n + g * p.v_h;",
                "let k_t = p.k_t; let v_t = p.v_t;", *self._places("k", self.head), *self._places("v", self.width),
                *(self._one_by_one() if self.single else self._from_memory() if self.shared else self._by_fours()),
                *self._end(),
                "}",
            ]
        )  # fmt: skip

    def _one_by_one(self) -> Iterator[str]:
        yield "for (var t = first; t < last; t++) { let at_k = k_start + t * k_t; let at_v = v_start + t * v_t;"
        yield from (*self._one(), "}")

    def _by_fours(self) -> Iterator[str]:
        yield from ("for (var t = first; t < last; t += 4u) {", *self._four_keys(), "}")

    def _from_memory(self) -> Iterator[str]:
        yield f"for (var from_key = first; from_key < last; from_key += {self.shared}u) {{"
        yield "fetch(lane, k_start, v_start, from_key, last); workgroupBarrier();"
        yield f"for (var s = 0u; s < {self.shared}u; s += 4u) {{ let t = from_key + s;"
        yield from (*self._four_keys(), "} workgroupBarrier(); }")

    def _four_keys(self) -> Iterator[str]:
        """Keys from `last` on are the last one, with logits of -inf and values of 0."""
        each = ORDER if self.quads else ("0u", "1u", "2u", "3u")
        yield f"let past = vec4<u32>({', '.join(f't + {i}' for i in each)}) >= vec4<u32>(last);"
        yield from (*self._logits(), *self._weights(), *self._values())

    def _start(self) -> Iterator[str]:
        for r in range(self.rows):
            yield f"let row{r} = row + {r}u * step; let i{r} = (z * m + row{r}) * keys;"
            yield f"let a{r} = q_start(n, g, row{r});"
            yield from (f"let q{r}_{i} = load4_q(a{r} + {i}u);" for i in range(self.head))
            yield f"var top{r} = {LOW}; var sum{r} = vec4<f32>();"
            yield from (f"var o{r}_{i} = vec4<f32>();" for i in range(self.width))

    def _places(self, name: str, fours: int) -> Iterator[str]:
        """Which of four keys each of a lane's own fours is of, and which four of it; of a quad all are of one key."""
        for j in range(self._loads(fours)):
            yield f"let four_{name}{j} = min(lane + {j * self.lanes}u, {4 * fours - 1}u);"
            yield f"let key_{name}{j} = four_{name}{j} / {fours}u; let place_{name}{j} = four_{name}{j} % {fours}u;"

    def _loads(self, fours: int) -> int:
        return -(-4 * fours // self.lanes) if self.lanes and not self.quads else 0

    def _own(self, name: str, fours: int) -> Iterator[str]:
        """A lane's own fours; without lanes where the four keys are."""
        if self.quads:
            yield f"let at_{name} = {name}_start + min(t + lane, last - 1u) * {name}_t;"
            for i in range(fours):
                yield f"let own_{name}{i} = {self._inside(name, f'load4_{name}(at_{name} + {i}u)', 't + lane < last')};"
            return
        for j in range(self._loads(fours)):
            at = f"{name}_start + min(t + key_{name}{j}, last - 1u) * {name}_t + place_{name}{j}"
            yield f"let own_{name}{j} = {self._inside(name, f'load4_{name}({at})', f't + key_{name}{j} < last')};"
        if not self.lanes and not self.shared:
            yield from (f"let {name}_at{k} = {name}_start + min(t + {k}u, last - 1u) * {name}_t;" for k in range(4))

    def _inside(self, name: str, load: str, inside: str) -> str:
        return f"select(vec4<f32>(), {load}, {inside})" if name == "v" else load

    def _four(self, name: str, fours: int, i: int) -> str:
        """Four i of four keys, as a matrix's columns."""
        return f"mat4x4<f32>({', '.join(self._column(name, key * fours + i, key, i) for key in range(4))})"

    def _column(self, name: str, four: int, key: int, i: int) -> str:
        if self.shared:
            return f"{name}_tile[s * {self.head if name == 'k' else self.width}u + {four}u]"
        if not self.lanes:
            return self._inside(name, f"load4_{name}({name}_at{key} + {i}u)", f"!past.{'xyzw'[key]}")
        if self.quads:
            return SWAPS[key].format(f"own_{name}{i}")
        return f"subgroupBroadcast(own_{name}{four // self.lanes}, {four % self.lanes}u)"

    def _logits(self) -> Iterator[str]:
        yield from self._own("k", self.head)
        yield from (f"var c{r} = vec4<f32>();" for r in range(self.rows))
        for i in range(self.head):
            yield f"let mk{i} = {self._four('k', self.head, i)};"
            yield from (f"c{r} += q{r}_{i} * mk{i};" for r in range(self.rows))
        if self.rolled:
            yield from self._in_turn()
        else:
            yield from (f"c{r} = {self._finish(f'c{r}, i{r} + t')};" for r in range(self.rows))

    def _finish(self, arguments: str) -> str:
        """The call of the epilogue of four logits."""
        return f"epilogue4({arguments}, lane)" if self.quads else f"epilogue4({arguments})"

    def _in_turn(self) -> Iterator[str]:
        """The epilogues of c0, c1 … by a loop in which they move, as in `vectors.in_turn`, and come back."""
        moves = " ".join(f"c{r} = c{r + 1};" for r in range(self.rows - 1))
        yield f"for (var turn = 0u; turn < {self.rows}u; turn++) {{"
        yield f"let logit = {self._finish('c0, i0 + turn * step * keys + t')}; {moves} c{self.rows - 1} = logit; }}"

    def _weights(self) -> Iterator[str]:
        for r in range(self.rows):
            yield f"c{r} = select(c{r}, vec4<f32>(-f32_inf()), past);"
            yield f"let next{r} = max(top{r}, max(max(c{r}.x, c{r}.y), max(c{r}.z, c{r}.w)));"
            yield f"let s{r} = exp(top{r} - next{r}); let x{r} = exp(c{r} - next{r}); top{r} = next{r};"
            yield f"sum{r} = sum{r} * s{r} + x{r};"

    def _values(self) -> Iterator[str]:
        yield from self._own("v", self.width)
        for i in range(self.width):
            yield f"let mv{i} = {self._four('v', self.width, i)};"
            yield from (f"o{r}_{i} = o{r}_{i} * s{r} + mv{i} * x{r};" for r in range(self.rows))

    def _one(self) -> Iterator[str]:
        """A single key, of those that are left."""
        yield from (f"let k{i} = load4_k(at_k + {i}u);" for i in range(self.head))
        for r in range(self.rows):
            yield f"let d{r} = {' + '.join(f'q{r}_{i} * k{i}' for i in range(self.head))};"
            yield f"let c{r} = epilogue((d{r}.x + d{r}.y) + (d{r}.z + d{r}.w), i{r} + t);"
            yield f"let next{r} = max(top{r}, c{r});"
            yield f"let s{r} = exp(top{r} - next{r}); let x{r} = exp(c{r} - next{r}); top{r} = next{r};"
            yield f"sum{r} = sum{r} * s{r} + vec4<f32>(x{r}, 0.0, 0.0, 0.0);"
        for i in range(self.width):
            yield f"let v{i} = load4_v(at_v + {i}u);"
            yield from (f"o{r}_{i} = o{r}_{i} * s{r} + x{r} * v{i};" for r in range(self.rows))

    def _end(self) -> Iterator[str]:
        rows = range(self.rows)
        for r in rows:
            yield f"let total{r} = (sum{r}.x + sum{r}.y) + (sum{r}.z + sum{r}.w);"
            yield f"let to{r} = result_at(n, g, z, row{r}, part); let factor{r} = result_scale(total{r});"
            yield f"if (row{r} < m) {{ result_sums(to{r}, total{r}, top{r}); }}"
        stores = (f"if (row{r} < m) {{ result4(to{r}, 4u * i, o{r}_0, factor{r}); }}" for r in rows)
        yield from in_turn([[f"o{r}_{i}" for r in rows] for i in range(self.width)], " ".join(stores), "i")
