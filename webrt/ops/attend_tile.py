"""The unrolled text of attention in one pass over the keys: rows of queries, their results and sums in registers.

Four keys at a time make a matrix: what a row of queries gives with it are four logits, and their weights times the
values go into the row's result, after that was scaled to the largest logit so far (https://arxiv.org/abs/1805.02867).
What costs is to bring keys and values into a lane: several rows use each, and the lanes of a subgroup load them for
each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    def turns(self) -> int:
        """Turns of loops for four keys, with those that a long epilogue takes."""
        return 4 if self.single else 1 + (5 * self.rows if self.rolled else 0)

    @property
    def fn(self) -> str:
        """`fn tile(z, row, step, part, lane)`: rows `row`, `row` + `step` … of key head z over span `part` of keys."""
        return "\n".join(
            [
                "fn tile(z: u32, row: u32, step: u32, part: u32, lane: u32) {",
                "let n = z / p.groups; let g = z - n * p.groups;",
                "let first = part * p.span; let last = min(first + p.span, p.n);",
                *self._start(),
                "var at_k = p.k_at + n * p.k_n + g * p.k_h + first * p.k_t;",
                "var at_v = p.v_at + n * p.v_n + g * p.v_h + first * p.v_t;",
                "var t = first;",
                *self._places("k", self.head), *self._places("v", self.width),
                *(self._from_memory() if self.shared else self._from_bindings()),
                *self._end(),
                "}",
            ]
        )  # fmt: skip

    def _from_bindings(self) -> Iterator[str]:
        if not self.single:
            yield "for (; t + 4u <= last; t += 4u) {"
            yield from (*self._logits("t"), *self._weights(), *self._values())
            yield "at_k += 4u * p.k_t; at_v += 4u * p.v_t; }"
        yield from ("for (; t < last; t++) {", *self._one(), "at_k += p.k_t; at_v += p.v_t; }")

    def _from_memory(self) -> Iterator[str]:
        """Logits past the last key are -inf."""
        yield f"for (; t < last; t += {self.shared}u) {{"
        yield "fetch(lane, at_k, at_v, last - t); workgroupBarrier();"
        yield f"for (var s = 0u; s < {self.shared}u; s += 4u) {{"
        yield "let key = vec4<u32>(t + s) + vec4<u32>(0u, 1u, 2u, 3u);"
        yield from self._logits("min(t + s, last - 1u)")
        yield "c0 = select(c0, vec4<f32>(-f32_inf()), key >= vec4<u32>(last));"
        yield from (*self._weights(), *self._values(), "}")
        yield f"workgroupBarrier(); at_k += {self.shared}u * p.k_t; at_v += {self.shared}u * p.v_t; }}"

    def _start(self) -> Iterator[str]:
        for r in range(self.rows):
            yield f"let row{r} = row + {r}u * step; let i{r} = (z * p.m + row{r}) * p.n;"
            yield f"let a{r} = q_start(n, g, row{r});"
            yield from (f"let q{r}_{i} = load4_q(a{r} + {i}u);" for i in range(self.head))
            yield f"var top{r} = {LOW}; var sum{r} = vec4<f32>();"
            yield from (f"var o{r}_{i} = vec4<f32>();" for i in range(self.width))

    def _places(self, name: str, fours: int) -> Iterator[str]:
        """Where a lane's own fours of four keys are."""
        for j in range(self._loads(fours)):
            yield f"let four_{name}{j} = min(lane + {j * self.lanes}u, {4 * fours - 1}u);"
            yield f"let place_{name}{j} = four_{name}{j} / {fours}u * p.{name}_t + four_{name}{j} % {fours}u;"

    def _loads(self, fours: int) -> int:
        return -(-4 * fours // self.lanes) if self.lanes else 0

    def _own(self, name: str, fours: int) -> Iterator[str]:
        yield from (
            f"let own_{name}{j} = load4_{name}(at_{name} + place_{name}{j});" for j in range(self._loads(fours))
        )

    def _four(self, name: str, fours: int, i: int) -> str:
        """Four i of four keys, as a matrix's columns."""
        return f"mat4x4<f32>({', '.join(self._column(name, key * fours + i, key, i) for key in range(4))})"

    def _column(self, name: str, four: int, key: int, i: int) -> str:
        if self.shared:
            return f"{name}_tile[s * {self.head if name == 'k' else self.width}u + {four}u]"
        if not self.lanes:
            return f"load4_{name}(at_{name} + {key}u * p.{name}_t + {i}u)"
        broadcast = "quadBroadcast" if self.lanes == 4 else "subgroupBroadcast"
        return f"{broadcast}(own_{name}{four // self.lanes}, {four % self.lanes}u)"

    def _logits(self, t: str) -> Iterator[str]:
        yield from self._own("k", self.head)
        yield from (f"var c{r} = vec4<f32>();" for r in range(self.rows))
        for i in range(self.head):
            yield f"let mk{i} = {self._four('k', self.head, i)};"
            yield from (f"c{r} += q{r}_{i} * mk{i};" for r in range(self.rows))
        if self.rolled:
            yield from self._in_turn(t)
        else:
            yield from (f"c{r} = epilogue4(c{r}, i{r} + {t});" for r in range(self.rows))

    def _in_turn(self, t: str) -> Iterator[str]:
        """The epilogues of c0, c1 … by a loop in which they move, as in `vectors.in_turn`, and come back."""
        moves = " ".join(f"c{r} = c{r + 1};" for r in range(self.rows - 1))
        yield f"for (var turn = 0u; turn < {self.rows}u; turn++) {{"
        yield f"let logit = epilogue4(c0, i0 + turn * step * p.n + {t}); {moves} c{self.rows - 1} = logit; }}"

    def _weights(self) -> Iterator[str]:
        for r in range(self.rows):
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
        for r in range(self.rows):
            yield f"if (row{r} < p.m) {{ let total = (sum{r}.x + sum{r}.y) + (sum{r}.z + sum{r}.w);"
            yield f"let at = result_at(n, g, z, row{r}, part); let factor = result_scale(total);"
            yield f"result_sums(at, total, top{r});"
            yield from (f"result4(at, {4 * i}u, o{r}_{i}, factor);" for i in range(self.width))
            yield "}"
