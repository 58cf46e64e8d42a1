"""Several elementwise formulas as one: within an elementwise kernel, or as the epilogue of a heavier one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from webrt.dims import Dim
from webrt.ir import Node, Value
from webrt.lowering import Builder, Elementwise, Formula
from webrt.ops.broadcasting import address, align
from webrt.ops.conv import conv
from webrt.ops.conv_transpose import conv_transpose
from webrt.ops.elementwise import from_params, launch, scalar_words
from webrt.ops.gemm import gemm
from webrt.ops.global_pool import global_average_pool, global_lp_pool, global_max_pool
from webrt.ops.matmul import fused_matmul, matmul
from webrt.ops.matmul_nbits import matmul_nbits
from webrt.ops.pool import average_pool, lp_pool, max_pool
from webrt.ops.reduce import reduce_extreme, reduce_log_sum_exp, reduce_root, reduce_sum
from webrt.ops.vectors import Epilogue
from webrt.ops.view import element_type
from webrt.schemas import MS_DOMAIN

_PARAM = re.compile(r"\bp\.(?=[a-z])")


def compose(
    steps: Sequence[Elementwise], known: Mapping[Value, str], prefix: str = ""
) -> tuple[dict[str, Value], Formula]:
    """The operands x0, x1, … and the formula of the last step's result; `known` names values that are there already.
    All names begin with `prefix`.

    Values between the steps are never stored, so halves among them keep the range and precision of f32."""
    names, reads = dict(known), dict[str, Value]()
    lines, fns = list[str](), list[str]()
    use, params = dict[str, None](), dict[str, Dim | float]()
    for k, step in enumerate(steps):
        for v in step.operands.values():
            if v not in names:
                names[v] = f"{prefix}x{len(reads)}"
                reads[names[v]] = v
        types = ", ".join(f"{name}: {element_type(v).wgsl}" for name, v in step.operands.items())
        body = _PARAM.sub(f"p.{prefix}s{k}_", step.formula.body)
        fns += [*step.formula.fns, f"fn {prefix}step{k}({types}) -> {element_type(step.out).wgsl} {{ {body} }}"]
        use |= dict.fromkeys(step.formula.use)
        params |= {f"{prefix}s{k}_{name}": x for name, x in step.formula.params.items()}
        lines.append(f"let {prefix}t{k} = {prefix}step{k}({', '.join(names[v] for v in step.operands.values())});")
        names[step.out] = f"{prefix}t{k}"
    body = "\n".join([*lines, f"return {names[steps[-1].out]};"])
    return reads, Formula(body, tuple(use), params, tuple(fns))


def launch_steps(b: Builder, out: Value, steps: Sequence[Elementwise], name: str) -> None:
    """One kernel that writes the last step's result to `out`."""
    reads, formula = compose(steps, {})
    launch(b, out, reads, formula, name)


def epilogue_steps(steps: Sequence[Elementwise], head: Value) -> Epilogue:
    """The steps as what a kernel that computes `head` (of the last step's shape) does before it stores."""
    return _inline(*compose(steps, {head: "v"}), head, "e_")


def source_steps(steps: Sequence[Elementwise]) -> Epilogue:
    """The steps as what a kernel that reads element i of the last one's result, which is not stored, does instead."""
    return _inline(*compose(steps, {}, "l"), steps[-1].out, "l_")


def _inline(operands: Mapping[str, Value], formula: Formula, whole: Value, prefix: str) -> Epilogue:
    """The formula for element i of a tensor of whole's shape. The names of its parameters begin with `prefix`."""
    scalars = {k: words for k, v in operands.items() if (words := scalar_words(k, v))}
    reads = {k: v for k, v in operands.items() if k not in scalars}
    at = address(align(whole.known_shape, {k: v.known_shape for k, v in reads.items()}), "i")
    params: dict[str, Dim | float] = {**formula.params, **at.params}
    for words in scalars.values():
        params |= words
    values = [f"let {k} = {from_params(k, element_type(operands[k]))};" for k in scalars]
    loads = [f"let {k} = load_{k}({at.index[k]});" for k in reads]
    text = "\n".join([*at.lines, *values, *loads, formula.body])
    wide = ("int64",) if any(v.dtype is not None and v.dtype.bits == 64 for v in operands.values()) else ()
    return Epilogue(
        _PARAM.sub(f"p.{prefix}", text), reads, {f"{prefix}{k}": x for k, x in params.items()}, (*wide, *formula.use),
        tuple(_PARAM.sub(f"p.{prefix}", fn) for fn in formula.fns),
    )  # fmt: skip


HEADS: Mapping[tuple[str, str], Callable[[Node, Builder, Epilogue], None]] = {
    ("", "Conv"): conv,
    ("", "ConvTranspose"): conv_transpose,
    ("", "MatMul"): matmul,
    ("", "Gemm"): gemm,
    (MS_DOMAIN, "FusedMatMul"): fused_matmul,
    (MS_DOMAIN, "MatMulNBits"): matmul_nbits,
    ("", "MaxPool"): max_pool,
    ("", "AveragePool"): average_pool,
    ("", "LpPool"): lp_pool,
    ("", "GlobalMaxPool"): global_max_pool,
    ("", "GlobalAveragePool"): global_average_pool,
    ("", "GlobalLpPool"): global_lp_pool,
    **{("", f"Reduce{name}"): reduce_sum for name in ("Sum", "L1", "SumSquare", "Prod", "Mean")},
    **{("", f"Reduce{name}"): reduce_extreme for name in ("Max", "Min")},
    **{("", f"Reduce{name}"): reduce_root for name in ("L2", "LogSum")},
    ("", "ReduceLogSumExp"): reduce_log_sum_exp,
}
"""Lowerings whose kernels can end with formulas, by domain and operator."""

FOLDS: Mapping[tuple[str, str], Callable[[Node, Builder, Epilogue, Epilogue], None]] = {
    **{("", f"Reduce{name}"): reduce_sum for name in ("Sum", "L1", "SumSquare", "Prod", "Mean")},
    **{("", f"Reduce{name}"): reduce_extreme for name in ("Max", "Min")},
    **{("", f"Reduce{name}"): reduce_root for name in ("L2", "LogSum")},
}
"""Those of them whose kernels read each element once, and can make it by formulas, too."""

IMAGES = frozenset({("", op) for op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")})
"""Those of them whose results may lie in memory in another order of axes."""
