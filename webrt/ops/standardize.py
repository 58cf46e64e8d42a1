"""(x - mean) / sqrt(variance + ε) · scale + bias over rows: the core of Layer-, RMS-, Instance- and GroupNormalization.

Mean and variance are in f32 for all types, the variance from the differences to the mean (two passes). Rows that one
invocation can hold take the kernel norm_rows; others a fold for the mean, one for the variance, an elementwise pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.ir import Value
from webrt.lowering import WORKGROUP, Builder, Variant, grid
from webrt.ops.product_variants import SOFTWARE
from webrt.ops.reduce import row_sums
from webrt.ops.rows import Rows, split
from webrt.ops.softmax import FEW, UNIT
from webrt.ops.vectors import kind, load4, store_fours, vec_of

MANY = 32
"""Rows from which on four to an invocation are enough for two cores."""
INVERSE_DEVIATION = "1.0 / sqrt(a / f32(p.length) + bitcast<f32>(p.epsilon))"


@dataclass(frozen=True)
class Affine:
    """A factor or summand: element i of the tensor is joined with element `at.index(i)` of `value`."""

    value: Value
    at: Rows


def standardize(
    b: Builder,
    out: Value,
    x: Value,
    rows: Rows,
    *,
    epsilon: float,
    centred: bool = True,
    scale: Affine | None = None,
    bias: Affine | None = None,
    mean: Value | None = None,
    inverse: Value | None = None,
    finish: str = INVERSE_DEVIATION,
    name: str,
) -> None:
    """Normalizes each row of x into `out`. `centred` False leaves the mean in (RMS). `mean` and `inverse` receive one
    value per row where given; `finish` makes the factor from the sum of squares `a`."""
    plain = mean is None and inverse is None and finish == INVERSE_DEVIATION
    if plain and _row_kernel(b, out, x, rows, epsilon, centred, scale, bias, name):
        return
    middle = None
    if centred:
        middle = row_sums(b, x, rows, "v", "a / f32(p.length)", out=_own(mean), name="row_mean")
    factor = row_sums(
        b, x, rows, "(v - c) * (v - c)", finish, out=_own(inverse), context=middle, params={"epsilon": epsilon},
        name="row_deviation",
    )  # fmt: skip
    for asked, found in ((mean, middle), (inverse, factor)):
        if asked is not None and found is not None and asked is not found:
            b.map(asked, "return load_x(i);", reads={"x": found}, name="convert")
    _apply(b, out, x, rows, middle, factor, {"scale": scale, "bias": bias}, name)


def _own(asked: Value | None) -> Value | None:
    return asked if asked is not None and asked.dtype == T.F32 else None


def _apply(
    b: Builder, out: Value, x: Value, rows: Rows, middle: Value | None, factor: Value,
    affine: dict[str, Affine | None], name: str,
) -> None:  # fmt: skip
    reads = {"x": x, "factor": factor} | ({"middle": middle} if middle is not None else {})
    params, fns = rows.sizes(), [rows.index("row_of")]
    text = f"(load_x(i){' - load_middle(r)' if middle is not None else ''}) * load_factor(r)"
    for key, sign in (("scale", "*"), ("bias", "+")):
        part = affine[key]
        if part is not None:
            reads[key] = part.value
            params |= part.at.sizes(f"{key}_d")
            fns.append(part.at.index(f"{key}_at", f"{key}_d"))
            text += f" {sign} load_{key}({key}_at(i))"
    b.map(out, f"let r = row_of(i);\nreturn {text};", reads=reads, params=params, fns=fns, name=name)


def _row_kernel(
    b: Builder, out: Value, x: Value, rows: Rows, epsilon: float, centred: bool, scale: Affine | None,
    bias: Affine | None, name: str,
) -> bool:  # fmt: skip
    """One invocation per row where scale and bias run along the row, and all is f32 or rows are whole fours; False
    where that does not hold."""
    parts = {"scale": scale, "bias": bias}
    given = {k: v for k, v in parts.items() if v is not None}
    along = all(a.at == _along(rows) for a in given.values())
    reads = {"x": x, **{k: a.value for k, a in given.items()}}
    vec = rows.fours
    if (
        not (along and _by_units(vec, *reads.values(), out) and rows.contiguous)
        or split(rows.count, rows.length) is not None
    ):
        return False
    units, keep = [_unit(k, v, vec) for k, v in reads.items()], _keep("out", out, vec)
    one = Variant(
        "norm_rows", grid(rows.count), consts={"CENTRED": centred, "LANES": vec, "GROUP": WORKGROUP},
        types={"V": UNIT[vec]}, use=(f"unit{vec}",),
        fns=[*units, _affine(given), keep],
        vec=vec_of(**{k: (kind(v), vec == 4) for k, v in {**reads, "out": out}.items()}),
    )  # fmt: skip
    params = {"n": rows.count, "length": D.floordiv(rows.length, vec), "epsilon": epsilon}
    four = replace(
        one, body="norm_rows_four", groups=grid(D.ceildiv(rows.count, 4), FEW), fns=[*units, keep, _affine4(given)],
        consts={"CENTRED": centred, "GROUP": FEW}, use=(), requires=SOFTWARE, when=D.le(MANY, rows.count),
    )  # fmt: skip
    variants = [*([four] if vec == 4 else []), _few(one, rows), one]
    b.launch(*variants, reads=reads, writes={"out": out}, params=params, name=name)
    return True


def _few(one: Variant, rows: Rows) -> Variant:
    """What software adapters run: small workgroups."""
    return replace(one, groups=grid(rows.count, FEW), consts={**one.consts, "GROUP": FEW}, requires=SOFTWARE)


def _unit(name: str, v: Value, lanes: int) -> str:
    """`fn unit_<name>(k) -> V`: unit k of a tensor."""
    if lanes == 1:
        return f"fn unit_{name}(k: u32) -> V {{ return {name}[k]; }}"
    return f"{load4(name, kind(v), True, fours=True)}\nfn unit_{name}(k: u32) -> V {{ return load4_{name}(k); }}"


def _by_units(lanes: int, *values: Value) -> bool:
    """Whether a kernel reads and writes the values by units of so many lanes: f32, or whole fours of halves."""
    return all(v.dtype == T.F32 or (lanes == 4 and v.dtype in T.FLOATS) for v in values)


def _affine(given: Mapping[str, Affine]) -> str:
    """`fn affine(v, k) -> V`: unit k of a row, scaled and shifted."""
    text = "v" + (" * unit_scale(k)" if "scale" in given else "") + (" + unit_bias(k)" if "bias" in given else "")
    return f"fn affine(v: V, k: u32) -> V {{ return {text}; }}"


def _affine4(given: Mapping[str, Affine]) -> str:
    """`fn affine4(m, k) -> mat4x4`: unit k of four rows, scaled and shifted."""
    loads = "".join(f"let {name} = unit_{name}(k); " for name in given)
    text = "m[{}]" + (" * scale" if "scale" in given else "") + (" + bias" if "bias" in given else "")
    rows = ", ".join(text.format(r) for r in range(4))
    return f"fn affine4(m: mat4x4<f32>, k: u32) -> mat4x4<f32> {{ {loads}return mat4x4<f32>({rows}); }}"


def _keep(name: str, v: Value, lanes: int) -> str:
    """`fn keep_<name>(u, r)`: stores unit u."""
    store = f"{name}[u] = r;" if lanes == 1 else f"let i = 4u * u; {store_fours(kind(v), name)}"
    return f"fn keep_{name}(u: u32, r: V) {{ {store} }}"


def skip_rows(
    b: Builder, out: Value, total: Value, summands: Mapping[str, Value], rows: Rows, *, epsilon: float, centred: bool,
    affine: Mapping[str, Affine], name: str,
) -> bool:  # fmt: skip
    """total = x + skip (+ shift along the row), out = total normalized: one kernel where shapes fit, and all is f32 or
    rows are whole fours; False where that does not hold."""
    full, shift, vec = [summands["x"], summands["skip"]], summands.get("shift"), rows.fours
    reads = {**summands, **{k: a.value for k, a in affine.items()}}
    along = all(a.at == _along(rows) for a in affine.values())
    fits = all(v.known_shape == out.known_shape for v in full)
    if shift is not None:
        fits = fits and Rows.broadcast(out.known_shape, shift.known_shape) == _along(rows)
    if not (along and fits and rows.contiguous and _by_units(vec, out, total, *reads.values())):
        return False
    if split(rows.count, rows.length) is not None:
        return False
    summed = f"fn summed(v: V, k: u32) -> V {{ return v{' + unit_shift(k)' if shift is not None else ''}; }}"
    touched = {**reads, "total": total, "out": out}
    units = [_unit(k, v, vec) for k, v in touched.items() if k != "out"]
    variant = Variant(
        "skip_norm_rows", grid(rows.count), consts={"CENTRED": centred, "LANES": vec, "GROUP": WORKGROUP},
        types={"V": UNIT[vec]}, use=(f"unit{vec}",),
        fns=[*units, _affine(affine), summed, _keep("total", total, vec), _keep("out", out, vec)],
        vec=vec_of(**{k: (kind(v), vec == 4) for k, v in touched.items()}),
    )  # fmt: skip
    params = {"n": rows.count, "length": D.floordiv(rows.length, vec), "epsilon": epsilon}
    b.launch(_few(variant, rows), variant, reads=reads, writes={"total": total, "out": out}, params=params, name=name)
    return True


def _along(rows: Rows) -> Rows:
    """How a tensor of one row's shape broadcasts over `rows`: kept and reduced change places."""
    return Rows(tuple((not reduced, size) for reduced, size in rows.dims))
