"""WGSL functions that say where an output pixel's tap reads, for windows over one, two or three axes.

`outer_source(o, tap)` is the start of the input's row for row o of the output's plane, negative in the padding.
`inner_source(column, tap)` is the position in that row, which the caller checks; OUTSIDE where the tap has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from webrt.dims import Dim
from webrt.ops.windows import Axis

_FORWARD = """fn source(o: u32, k: u32, stride: u32, dilation: u32, pad: u32) -> i32 {
  return i32(o * stride + k * dilation - pad);
}"""
_BACKWARD = """fn source(o: u32, k: u32, stride: u32, dilation: u32, pad: u32) -> i32 {
  let at = i32(o + pad - k * dilation);
  return select(at / i32(stride), -0x40000000, at % i32(stride) != 0);
}"""


def tap_params(axes: Sequence[Axis]) -> dict[str, Dim | float]:
    """Parameters of the two functions: per axis its size, output size, taps, stride, dilation and padding before."""
    out: dict[str, Dim | float] = {}
    for i, a in enumerate(axes):
        out |= {f"size_{i}": a.size, f"out_{i}": a.out, f"kernel_{i}": a.kernel, f"stride_{i}": a.stride}
        out |= {f"dilation_{i}": a.dilation, f"pad_{i}": a.before}
    return out


def tap_functions(rank: int, transposed: bool = False) -> list[str]:
    """The text of the two functions. `transposed`: from the output of a convolution back to its input."""
    last = rank - 1
    lines = [
        "fn outer_source(o: u32, tap: u32) -> i32 {",
        f"var row = o; var t = tap / p.kernel_{last}; var unit = p.size_{last}; var at = 0u; var x = 0;",
    ]
    for i in reversed(range(last)):
        lines += [
            f"x = source(row % p.out_{i}, t % p.kernel_{i}, p.stride_{i}, p.dilation_{i}, p.pad_{i});",
            f"if (x < 0 || x >= i32(p.size_{i})) {{ return -1; }}",
            f"at += u32(x) * unit; unit *= p.size_{i}; row /= p.out_{i}; t /= p.kernel_{i};",
        ]
    inner = f"source(column, tap % p.kernel_{last}, p.stride_{last}, p.dilation_{last}, p.pad_{last})"
    return [
        _BACKWARD if transposed else _FORWARD,
        "\n".join([*lines, "return i32(at); }"]),
        f"fn inner_source(column: u32, tap: u32) -> i32 {{ return {inner}; }}",
    ]
