"""Depthwise convolutions: 2 rows of 4 pixels per invocation, unrolled over (blocks of) the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid
from webrt.ops.taps import tap_params
from webrt.ops.vectors import Epilogue, finish, through_temp
from webrt.ops.windows import Axis

MAX_UNROLLED = 25
ROWS, COLUMNS = 2, 4


def depthwise(
    b: Builder,
    operands: tuple[Value, Value, Value],
    result: Value,
    axes: Sequence[Axis],
    multiplier: int,
    epilogue: Epilogue,
) -> None:
    """x, weights and bias to [images, channels · multiplier, …], up to three axes.

    Raises UnsupportedOp for more taps than an invocation may loop over.
    """
    x, w, bias = operands
    depth, height, width = (*(Axis(1, 1, 1, 1, 0, 0, 1) for _ in range(3 - len(axes))), *axes)
    run = _divisor(width.kernel, MAX_UNROLLED)
    band = _divisor(height.kernel, MAX_UNROLLED // run)
    bands, runs = height.kernel // band, width.kernel // run
    if depth.kernel * bands * runs > MAX_ITERATIONS:
        raise UnsupportedOp(f"a convolution with {depth.kernel * height.kernel * width.kernel} taps in one sum")
    images, channels = x.known_shape[0], D.mul(x.known_shape[1], multiplier)
    rows, columns = D.ceildiv(height.out, ROWS), D.ceildiv(width.out, COLUMNS)
    params: dict[str, Dim | float] = {
        "images": images, "channels": channels, "multiplier": multiplier, "rows": rows, "columns": columns,
        "bands": bands, "runs": runs, **tap_params((depth, height, width)), **epilogue.params,
    }  # fmt: skip
    consts = {
        "WHOLE": depth.trivial and bands * runs == 1, "BAND": band, "RUN": run, "DILATION_1": height.dilation,
        "DILATION_2": width.dilation, "STRIDE_1": height.stride, "STRIDE_2": width.stride,
    }  # fmt: skip
    variant = Variant(
        "conv_depthwise",
        grid(D.prod((images, channels, depth.out, rows, columns))),
        consts=consts,
        fns=[_add_taps(height, width, band, run), epilogue.fn],
        use=epilogue.use,
    )
    out = through_temp(b, result)
    reads = {"x": x, "w": w, "bias": bias, **epilogue.reads}
    b.launch(variant, reads=reads, writes={"out": out}, params=params, name="conv_depthwise")
    finish(b, out, result, "conv_depthwise")


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is not above `most`."""
    return max(d for d in range(1, max(1, most) + 1) if n % d == 0)


def _add_taps(height: Axis, width: Axis, band: int, run: int) -> str:
    """Adds band × run taps to a tile: each element of the input that they need is loaded once."""
    places = [[c * width.stride + kx * width.dilation for c in range(COLUMNS)] for kx in range(run)]
    columns = sorted({x for place in places for x in place})
    lines = ["fn add_taps(sum: Tile, block: Block) -> Tile {", "var top = sum.top; var bottom = sum.bottom;"]
    weights = [(ky, kx) for ky in range(band) for kx in range(run)]
    lines += [f"let w{ky}_{kx} = load_w(block.w + {ky}u * p.kernel_2 + {kx}u);" for ky, kx in weights]
    lines += [f"let in{x} = block.x + {x} >= 0 && block.x + {x} < i32(p.size_2);" for x in columns]
    lines += ["var y = 0; var at = 0u; var row = false;", *(f"var x{x} = Out();" for x in columns)]
    users = {(r, ky): r * height.stride + ky * height.dilation for r in range(ROWS) for ky in range(band)}
    for y in sorted(set(users.values())):
        lines.append(f"y = block.y + {y}; at = line_start(block, y); row = y >= 0 && y < i32(p.size_1);")
        lines += [f"x{x} = pixel(at + {x}u, row && in{x});" for x in columns]
        for (r, ky), wanted in users.items():
            if wanted == y:
                terms = (f"w{ky}_{kx} * vec4<Out>({', '.join(f'x{x}' for x in places[kx])})" for kx in range(run))
                lines.append(f"{('top', 'bottom')[r]} += {' + '.join(terms)};")
    return "\n".join([*lines, "return Tile(top, bottom);", "}"])
