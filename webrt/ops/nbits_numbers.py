"""How the numbers of packed words become floats in a register tile.

A number's bits go into the mantissa of a power of two, and that is subtracted: three instructions for four columns, and
exact. SwiftShader shifts lane by lane; there bits that do not fit into a mantissa are converted where they are, and
constants are held in variables: it reads one by two instructions more wherever it stands, but what it cannot
know to be constant as a part of the instruction that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MANTISSA, BIAS = 23, 127


@dataclass(frozen=True)
class Zeros:
    """Zero points: the one of `all` weights, or None where they stand after each block's scales. `whole`: they are
    numbers that weights may be."""

    all: float | None
    whole: bool

    @property
    def parts(self) -> int:
        """Rows of a block's scales and zero points."""
        return 2 if self.all is None else 1

    def at(self, place: str, row: str, load: str = "fours_scale") -> str:
        """Those of the scales at a place, a `row` before them; p.zero is the one of all."""
        return f"{load}({place} + {row})" if self.all is None else "bitcast<f32>(p.zero)"


@dataclass(frozen=True)
class Numbers:
    """32-bit words of 32 / `bits` weights, in the order that shaders/matmul_nbits.wgsl tells. `sampled`: for
    SwiftShader."""

    bits: int
    zeros: Zeros
    sampled: bool

    @property
    def count(self) -> int:
        """Numbers of a word."""
        return 32 // self.bits

    @property
    def _places(self) -> list[int]:
        """The first bit of each number of a word, in the order of k."""
        return [bit + low for low in range(0, 8, self.bits) for bit in range(0, 32, 8)]

    @property
    def _half(self) -> int:
        """From which bit on numbers are shifted down by it before they are unpacked."""
        return 32 if self.sampled else 16

    def _fits(self, bit: int) -> bool:
        """Whether a number that begins at a bit fits into a mantissa."""
        return bit + self.bits <= MANTISSA

    def constants(self) -> Iterator[str]:
        """m0, m8, …: masks by their first bits; o0, o8, …: exponents; f24, …: factors. p.k_first is 0."""
        if not self.sampled:
            return
        yield "let none = p.k_first;"
        for bit in sorted(self._places):
            yield f"let m{bit} = vec4<u32>(none + {((1 << self.bits) - 1) << bit}u);"
            if self._fits(bit):
                yield f"let o{bit} = vec4<u32>(none + {BIAS + MANTISSA - bit << MANTISSA}u);"
            else:
                yield f"let f{bit} = vec4<f32>(bitcast<f32>(none + {BIAS - bit << MANTISSA}u));"
        yield f"let top = vec4<u32>(none + {1 << 31}u);"

    def subtrahends(self, vectors: int) -> Iterator[str]:
        """What is subtracted, for each vector of columns and each first bit."""
        for j in range(vectors):
            yield f"let zero{j} = {self.zeros.at(f'block + t{j}', 'fours')};"
            for bit in sorted({bit % self._half for bit in self._places}):
                yield f"let z{j}_{bit} = {self._base(bit)}{f' + zero{j}' if self.zeros.whole else ''};"

    def _base(self, bit: int) -> float:
        """What a number that begins at a bit is more than it should be, as it is unpacked."""
        if self._fits(bit):
            return float(1 << MANTISSA - bit)
        return -float(1 << self.bits - 1) if bit + self.bits == 32 else 0.0

    def weights(self, vectors: int) -> Iterator[str]:
        """w0_0, w0_1, …: of each vector of columns the numbers of one word, less their zero points."""
        for j in range(vectors):
            yield f"let lo{j} = fours_w(word * fours + t{j});"
            yield "" if self.sampled else f"let hi{j} = lo{j} >> vec4<u32>(16u);"
            for i, place in enumerate(self._places):
                bit = place % self._half
                word = f"{'hi' if place >= self._half else 'lo'}{j}"
                number = f"{self._unpacked(word, bit)} - z{j}_{bit}"
                yield f"let w{j}_{i} = {number}{'' if self.zeros.whole else f' - zero{j}'};"

    def _unpacked(self, word: str, bit: int) -> str:
        """Four columns' numbers that begin at a bit of their words. The last bits of a word are those of a signed
        number with the first of them the other way round."""
        if not self.sampled:
            mask, power = ((1 << self.bits) - 1) << bit, BIAS + MANTISSA - bit << MANTISSA
            return f"bitcast<vec4<f32>>(({word} & vec4<u32>({mask}u)) | vec4<u32>({power}u))"
        if self._fits(bit):
            return f"bitcast<vec4<f32>>(({word} & m{bit}) | o{bit})"
        if bit + self.bits == 32:
            word = f"({word} ^ top)"
        return f"vec4<f32>(bitcast<vec4<i32>>({word} & m{bit})) * f{bit}"
