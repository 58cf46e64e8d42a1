"""The product of two stacks of matrices, which MatMul, Gemm and 1×1 convolutions are.

out[z, row, column] = Σ_k a[z, row, k] · b[z, k, column], sums in f32 (or exact in 32-bit integers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Operand, Variant, Window, grid
from webrt.ops import panels
from webrt.ops.bands import row_bands
from webrt.ops.matrices import Matrices, as_rows, batch_axes, batch_offsets, transposed, turned
from webrt.ops.product_variants import Operands, variants
from webrt.ops.vectors import IDENTITY, Epilogue, accumulator, can_load4, finish, kind, through_temp
from webrt.ops.view import View

K_STEP = 4
MAX_K = K_STEP * (MAX_ITERATIONS - 4)
MAX_PARTS = 1024
FEW_OUTPUTS, LONG_SUM, MOST_SPLITS = 4096, 1024, 16
"""Up to so many outputs, sums are split into parts of so many terms or more, up to so many."""


@dataclass(frozen=True)
class Product:
    """Sizes of a product. `batch` is the result's leading shape, `a_batch` and `b_batch` broadcast to it.

    `b_row` is the number of elements from one row of b to the next, n where nothing is padded. `columns` = (first,
    count) where b holds these columns alone, and no others are written. `splits`: the batch is so many equal parts of
    k, which runs on from one to the next. `a_view` ([*a_batch, m, k]) and `b_view` ([*b_batch, k, n]): how the elements
    of an operand are read that do not lie one after another; a view of a matrix, or of its transpose, by lines.
    `panels`: b is stored in panels, as panels.py tells.
    """

    m: Dim
    n: Dim
    k: Dim
    batch: tuple[Dim, ...] = ()
    a_batch: tuple[Dim, ...] = ()
    b_batch: tuple[Dim, ...] = ()
    b_row: Dim | None = None
    columns: tuple[int, int] | None = None
    splits: int = 1
    a_view: View | None = None
    b_view: View | None = None
    panels: bool = False

    @property
    def left(self) -> Matrices:
        """How a's matrices lie. Raises UnsupportedOp for views that are not of lines."""
        return Matrices.whole(self.a_batch, self.m, self.k) if self.a_view is None else Matrices.of(self.a_view)

    @property
    def right(self) -> Matrices:
        """How b's matrices lie. Raises UnsupportedOp for views that are not of lines."""
        return Matrices.whole(self.b_batch, self.k, self.row_of_b) if self.b_view is None else Matrices.of(self.b_view)

    @property
    def row_of_b(self) -> Dim:
        return self.n if self.b_row is None else self.b_row

    @property
    def width(self) -> Dim:
        """The columns that are computed."""
        return self.n if self.columns is None else self.columns[1]


def product(
    b: Builder, s: Product, left: Value, right: Value, out: Value, epilogue: Epilogue = IDENTITY, name: str = "matmul"
) -> None:
    """Writes the product of `left` and `right` to `out`.

    Sums over more elements than one invocation may loop over, or than one binding of `right` holds, are added in parts.
    Raises UnsupportedType.
    """
    if left.dtype is None or left.dtype != right.dtype:
        raise UnsupportedType(f"a product of {left.dtype} and {right.dtype}")
    accumulator(out.dtype)
    if s.b_view is not None and len(b.windows(right)) > 1:
        raise UnsupportedOp("a view of a tensor that is larger than a binding")
    s = _rows_only(s)
    s, right = _padded(b, s, right)
    splits = _splits(b, s, right)
    if splits > 1:
        _sum_of_splits(b, s, splits, left, right, out, epilogue, name)
        return
    s, right = _in_panels(b, s, right)
    written = out if _in_fours(s, right, out) else through_temp(b, out)
    *parts, (first, last, part) = _parts_of_k(b, s, right)
    sums: dict[str, Value] = {}
    for start, end, piece in parts:
        total = b.temp(accumulator(out.dtype), out.known_shape)
        _launch(b, s, left, piece, total, _adding(IDENTITY, sums), name, (start, end))
        sums = {"before": total}
    _launch(b, s, left, part, written, _adding(epilogue, sums), name, (first, last))
    finish(b, written, out, name)


def product_transposed(
    b: Builder, s: Product, left: Value, right: Value, out: Value, epilogue: Epilogue = IDENTITY, name: str = "matmul"
) -> None:
    """`product` where `right` is [*b_batch, n, k]: a constant is transposed beforehand, anything else read so; of a
    matrix that is larger than a binding some rows at a time are transposed and multiplied."""
    lying = (*s.b_batch, s.n, s.k)
    if right.const is not None:
        columns = transposed(b, right, None if right.rank == len(lying) else lying)
        product(b, s, left, columns, out, epilogue, name)
        return
    parts = b.windows(right, K_STEP * s.k) if isinstance(s.k, int) and not s.batch else [right]
    if not isinstance(s.k, int) or len(parts) == 1:
        product(b, replace(s, b_view=turned(View.of(lying))), left, right, out, epilogue, name)
        return
    b.check(D.le(s.k, MAX_K), f"a product over more than {MAX_K} elements")
    row = kind(right).nbytes(s.k)
    written = out if can_load4(kind(out), s.n) else through_temp(b, out)
    for part in parts:
        if isinstance(part, Window) and isinstance(s.n, int):
            first = part.offset // row
            count = min(s.n - first, part.size // row)
            columns = transposed(b, part, (count, s.k))
            some = replace(s, columns=(first, count), b_row=count)
            _launch(b, some, left, columns, written, epilogue, name, (0, s.k))
    finish(b, written, out, name)


def _in_fours(s: Product, right: Value, out: Value) -> bool:
    """Whether whole words of the output are written."""
    return can_load4(kind(out), s.n) and (s.right.turned or can_load4(kind(right), *s.right.starts))


def _splits(b: Builder, s: Product, right: Value) -> int:
    """How many parts of k are summed apart, for a GPU's sake: more than one where outputs are few and sums long."""
    if b.target.kind == "software" or s.batch or len(b.windows(right)) > 1:
        return 1
    if not (isinstance(s.m, int) and isinstance(s.n, int) and isinstance(s.k, int)) or s.m * s.n > FEW_OUTPUTS:
        return 1
    most = min(MOST_SPLITS, s.k // LONG_SUM)
    return next((x for x in range(most, 1, -1) if s.k % (K_STEP * x) == 0 and s.k // x <= MAX_K), 1)


def _sum_of_splits(
    b: Builder, s: Product, splits: int, left: Value, right: Value, out: Value, epilogue: Epilogue, name: str
) -> None:
    """The parts of k as a batch of products, and their sum."""
    apart = replace(s, batch=(splits,), a_batch=(splits,), b_batch=(splits,), splits=splits)
    part = b.temp(accumulator(out.dtype), (splits, s.m, s.n))
    _launch(b, apart, left, right, part, IDENTITY, name, (0, D.floordiv(s.k, splits)))
    written = through_temp(b, out)
    variant = Variant("matmul_sum", grid(D.mul(s.m, s.n)), fns=[epilogue.fn], use=epilogue.use)
    params = {"m": s.m, "n": s.n, "splits": splits, **epilogue.params}
    reads = {"part": part, **epilogue.reads}
    b.launch(variant, reads=reads, writes={"out": written}, params=params, name=f"{name}_sum")
    finish(b, written, out, name)


def _adding(epilogue: Epilogue, sums: dict[str, Value]) -> Epilogue:
    return epilogue.following("v + load_before(i)", {}, **sums) if sums else epilogue


def _rows_only(s: Product) -> Product:
    """Without a batch in b, the rows of all of a's matrices are rows of one matrix, where they lie so."""
    if not s.batch or any(d != 1 for d in s.b_batch):
        return s
    a_view = None if s.a_view is None else as_rows(s.a_view)
    if s.a_view is not None and a_view is None:
        return s
    b_view = None if s.b_view is None else as_rows(s.b_view)
    return replace(
        s, m=D.mul(D.prod(s.batch), s.m), batch=(), a_batch=(), b_batch=(), a_view=a_view, b_view=b_view
    )  # fmt: skip


def _padded(b: Builder, s: Product, right: Value) -> tuple[Product, Value]:
    """A constant b whose rows are no multiple of 4 gets columns of zeros, so that it is loaded in fours."""
    apart = s.b_view is not None or can_load4(kind(right), s.n)
    if right.const is None or apart or not isinstance(s.n, int) or s.n < 8:
        return s, right
    extra = -s.n % 4
    return replace(s, b_row=s.n + extra), panels.with_zeros(b, right, right.const, extra)


def _in_panels(b: Builder, s: Product, right: Value) -> tuple[Product, Value]:
    """A constant b that is one matrix, all of it read by one dispatch, in panels where that is faster."""
    line, const = s.row_of_b, right.const
    if const is None or s.b_view is not None or any(d != 1 for d in s.b_batch):
        return s, right
    if not isinstance(line, int) or not isinstance(s.k, int) or s.k > MAX_K or not panels.gain(b, right, s.k, line):
        return s, right
    return replace(s, panels=True), panels.in_panels(b, right, const, line)


def _parts_of_k(b: Builder, s: Product, right: Value) -> list[tuple[int, Dim, Operand]]:
    """(first, last, what holds b's rows of these) for each part of k that one dispatch can take."""
    if not isinstance(s.k, int) or s.k == 0:
        b.check(D.le(s.k, MAX_K), f"a product over more than {MAX_K} elements")
        return [(0, s.k, right)]
    if s.k > MAX_PARTS * MAX_K:
        raise UnsupportedOp(f"a product over {s.k} elements, more than {MAX_PARTS} parts of {MAX_K}")
    row = s.row_of_b
    rows = b.windows(right, K_STEP * row) if isinstance(row, int) and not s.batch and s.b_view is None else [right]
    parts: list[tuple[int, Dim, Operand]] = []
    for part in rows:
        first, last = 0, s.k
        if isinstance(part, Window) and isinstance(row, int):
            first = part.offset // kind(right).nbytes(row)
            last = min(s.k, first + part.size // kind(right).nbytes(row))
        parts += [(at, min(last, at + MAX_K), part) for at in range(first, last, MAX_K)]
    return parts


def _launch(
    b: Builder, s: Product, left: Value, right: Operand, out: Value, epilogue: Epilogue, name: str,
    span: tuple[Dim, Dim],
) -> None:  # fmt: skip
    a, w, axes = s.left, s.right, _batch_axes(s)
    params: dict[str, Dim | float] = {
        "n": s.n, "a_line": a.line, "b_line": w.line, "k_first": span[0], "k_last": span[1], "width": s.width,
        "batches": D.prod(s.batch),
    }  # fmt: skip
    for i, (size, a_step, b_step) in enumerate(axes):
        params |= {f"size_{i}": size, f"a_{i}": a_step, f"b_{i}": b_step}
    before = right.offset * 8 // kind(right).bits if isinstance(right, Window) else 0
    shifted = (a.first, w.first, before) != (0, 0, 0)
    if shifted:
        params |= {"a_first": a.first, "b_first": D.sub(w.first, before)}
    if s.columns is not None:
        params["column"] = s.columns[0]
    row = None if s.batch or s.a_view is not None or not isinstance(s.k, int) else kind(left).nbytes(s.k)
    for band in row_bands(b, left, s.m, row):
        operands = Operands(
            band.left, right, out, epilogue, band.rows, s.n, s.k, a, w, s.width, D.prod(s.batch),
            s.columns is not None, batch_offsets(len(axes), shifted), bool(band.params), s.panels,
        )  # fmt: skip
        reads = {"a": band.left, "b": right, **band.operands(epilogue, out, s.n)}
        b.launch(
            *variants(operands, b.may_use), reads=reads, writes={"out": out}, name=name,
            params={"m": band.rows, **params, **band.params, **epilogue.params},
            sizes=(D.prod(s.batch), band.rows, s.width, s.k),
        )  # fmt: skip


def _batch_axes(s: Product) -> list[tuple[Dim, Dim, Dim]]:
    """(size, elements from one step to the next in a, in b) of the batch, or of the parts of k."""
    if s.splits == 1:
        return batch_axes(s.batch, s.left, s.a_batch, s.right, s.b_batch)
    each = D.floordiv(s.k, s.splits)
    a_step = D.mul(each, s.left.line) if s.left.turned else each
    return [(s.splits, a_step, each if s.right.turned else D.mul(each, s.right.line))]
