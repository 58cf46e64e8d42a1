"""Heads of an attention as views of what they are stored in, and what a row of weights is that has none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import ShapeError
from webrt.ir import Value
from webrt.ops.vectors import can_load4, kind, load4
from webrt.ops.view import View


class Empty(IntEnum):
    """What a row of weights is whose largest logit is not finite: NaN; 0 where that is -inf; 0 in all cases."""

    NAN = 0
    HIDDEN = 1
    ZERO = 2


@dataclass(frozen=True)
class Heads:
    """[batch, heads, steps, head] elements of a tensor, as a view of rank 4."""

    x: Value
    view: View

    def __post_init__(self) -> None:
        if len(self.view.shape) != 4:
            raise ShapeError(f"heads of rank {len(self.view.shape)}")

    @staticmethod
    def of(x: Value) -> Heads:
        """A tensor [batch, heads, steps, head]."""
        return Heads(x, View.of(x.known_shape))

    @property
    def fours(self) -> bool:
        """Whether a head's elements can be loaded in aligned fours."""
        *steps, last = self.view.strides
        counts = (self.view.offset, self.view.shape[3], *steps)
        return last == 1 and all(can_load4(kind(self.x), c) for c in counts)

    def params(self, name: str, batch: Dim) -> dict[str, Dim]:
        """Strides and offset; a batch of 1 is there for all of `batch`."""
        first, *others = self.view.strides
        own = self.view.shape[0]
        moves = (first if own == batch else D.select(D.eq(own, 1), 0, first), *others)
        return {**{f"{name}_{a}": step for a, step in zip("nhsd", moves)}, f"{name}_at": self.view.offset}

    def loader(self, name: str) -> str:
        """`fn <name>4(at, d)`: elements d … d+3 of the head that starts at `at`, 0 behind its end."""
        alias = f"vec4<{name.upper()}>"
        if self.fours:
            get = load4(name, kind(self.x), True)
            return f"{get}\nfn {name}4(at: u32, d: u32) -> {alias} {{ return load4_{name}(at + min(d, p.head - 4u)); }}"
        one = "select(load_{n}(at + min(d + {k}u, p.head - 1u) * p.{n}_d), 0.0, d + {k}u >= p.head)"
        each = ", ".join(one.format(n=name, k=k) for k in range(4))
        return f"fn {name}4(at: u32, d: u32) -> {alias} {{ return {alias}({each}); }}"
