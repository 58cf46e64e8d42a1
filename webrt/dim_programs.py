"""Programs of sizes, as a plan holds them, and what each instruction does.

A program is a list of instructions `[op, argument, …]`. An argument is an int literal or `[k]`, the result of
instruction k < its own. `evaluate` runs it; web/player/dims.js has its twin, and tests/unit/dim_cases.json is the table
both are tested on.

    var name · add · sub · mul · floordiv · mod (floored) · ceildiv · min · max · eq · lt · select c a b ·
    broadcast · scale_f32 x bits (floor of the f32 product with the f32 of those bits)

Every value is an integer with |x| < 2**53; anything else raises ShapeError, in both evaluators.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from webrt.errors import PlanError, ShapeError

LIMIT = 2**53
MAX_PROGRAM = 200_000

DimRef: TypeAlias = int | tuple[int]
"""A size in a plan: a literal, or `(k,)`, the result of instruction k of the plan's program."""


def evaluate(
    program: Sequence[Sequence[Any]], known: Mapping[str, int], failed: list[ShapeError] | None = None
) -> list[int | None]:
    """The value of each instruction; None where it depends on a variable that is not in `known`.

    Raises ShapeError for an overflow, a division by zero or sizes that do not broadcast; with `failed` such an
    instruction is None too, and its error is appended.
    """
    values: list[int | None] = []
    for op, *args in program:
        operands = [known.get(args[0])] if op == "var" else [values[a[0]] if isinstance(a, list) else a for a in args]
        try:
            values.append(None if None in operands else checked(OPS[op](*operands)))
        except ShapeError as e:
            if failed is None:
                raise
            failed.append(e)
            values.append(None)
    return values


def variables_of(program: Sequence[Sequence[Any]]) -> list[str]:
    """The names that a program's sizes depend on, in order."""
    return [str(args[0]) for op, *args in program if op == "var"]


def resolve(ref: DimRef, values: Sequence[int | None]) -> int | None:
    """The value of a plan's size."""
    return ref if isinstance(ref, int) else values[ref[0]]


def check_program(program: Any) -> None:
    """Raises PlanError unless `program` is well formed: known operations, arity, arguments that come before."""
    if not isinstance(program, list) or len(program) > MAX_PROGRAM:
        raise PlanError("the size program is not a list, or is longer than allowed")
    for k, instruction in enumerate(program):
        if not isinstance(instruction, list) or not instruction or not isinstance(instruction[0], str):
            raise PlanError(f"size instruction {k} is malformed")
        op, *args = instruction
        if op == "var":
            if len(args) != 1 or not isinstance(args[0], str):
                raise PlanError(f"size instruction {k} names no variable")
        elif op not in _ARITY or len(args) != _ARITY[op] or not all(_is_argument(a, k) for a in args):
            raise PlanError(f"size instruction {k} ({op}) is malformed")
        elif op == "scale_f32" and not (type(args[1]) is int and 0 <= args[1] < 1 << 32):
            raise PlanError(f"size instruction {k} (scale_f32) has no bits of a float32")


def f32_bits(x: float) -> int:
    """The bits of the nearest float32 as an unsigned integer."""
    try:
        packed = struct.pack("<f", x)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(math.inf, x))
    return int(struct.unpack("<I", packed)[0])


def _is_argument(a: Any, k: int) -> bool:
    if isinstance(a, list):
        return len(a) == 1 and type(a[0]) is int and 0 <= a[0] < k
    return type(a) is int and abs(a) < LIMIT


def checked(value: int) -> int:
    if not -LIMIT < value < LIMIT:
        raise ShapeError(f"a size overflows: {value} is beyond 2**53")
    return value


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise ShapeError("a size is divided by zero")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise ShapeError("a size is divided by zero")
    return a % b


def _broadcast(a: int, b: int) -> int:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise ShapeError(f"sizes {a} and {b} do not broadcast")


def scaled_f32(a: int, bits: int) -> int:
    """The product of two float32 is exact in a double, so rounding it once gives the float32 product."""
    (scale,) = struct.unpack("<f", struct.pack("<I", bits))
    (x,) = struct.unpack("<f", struct.pack("<f", checked(a)))
    product = x * scale
    if not math.isfinite(product) or abs(product) >= LIMIT:
        raise ShapeError(f"a size overflows: {a} scaled by {scale}")
    return math.floor(float(struct.unpack("<f", struct.pack("<f", product))[0]))


OPS: dict[str, Callable[..., int]] = {
    "var": lambda size: size,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": _floordiv,
    "mod": _mod,
    "ceildiv": lambda a, b: -_floordiv(-a, b),
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "lt": lambda a, b: int(a < b),
    "select": lambda c, a, b: a if c else b,
    "broadcast": _broadcast,
    "scale_f32": scaled_f32,
}
_ARITY = {op: 3 if op == "select" else 2 for op in OPS if op != "var"}
