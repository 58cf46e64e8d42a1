"""com.microsoft's MatMulNBits against onnxruntime: bits, block sizes, zero points, rows, odd sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node, device, node_model
from webrt.dtypes import BY_NAME
from webrt.host import run_model
from webrt.kernel_layout import kernel_layout
from webrt.ops import nbits_tile
from webrt.ops.product_variants import Form, subgroups
from webrt.plan import Dispatch, Plan
from webrt.runtime.tensor import numpy_dtype

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(29)


def check(
    lead: tuple[int, ...], n: int, k: int, *, bits: int = 4, block: int = 32, zeros: str = "", bias: bool = False,
    index: bool = False, dtype: str = "float32", constants: tuple[int, ...] = (1, 2, 3, 4, 5),
    by_the_host: bool = False,
) -> Plan:  # fmt: skip
    count = -(-k // block)
    scales = RNG.uniform(0.01, 0.1, (n, count)).astype(dtype)
    offsets: Array | None = None
    if zeros == "packed":
        offsets = RNG.integers(0, 256, (n, -(-count * bits // 8)), np.uint8)
    elif zeros:
        offsets = RNG.uniform(0, 2**bits, (n, count)).astype(dtype)
    inputs: list[Array | None] = [
        RNG.standard_normal((*lead, k)).astype(dtype),
        RNG.integers(0, 256, (n, count, block * bits // 8), np.uint8),
        scales,
        offsets,
        RNG.permutation(np.arange(k) // block).astype(np.int32) if index else None,
        RNG.standard_normal(n).astype(dtype) if bias else None,
    ]
    loose = {"rtol": 1e-3, "atol": 1e-4} if dtype == "float32" else {"rtol": 5e-3, "atol": 1e-1}
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    expected = None
    if by_the_host:
        expected = list(run_model(*node_model("MatMulNBits", inputs, attrs, domain="com.microsoft")).values())
    return check_node(
        "MatMulNBits", inputs, attrs, domain="com.microsoft", constants=constants,
        symbolic=[0] if 1 in constants else False, expected=expected, **loose,
    )  # fmt: skip


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("lead", [(1,), (2, 3), (9,)])
def test_bits_and_rows(bits: int, lead: tuple[int, ...]) -> None:
    check(lead, 24, 64, bits=bits)
    check(lead, 10, 96, bits=bits, block=16, zeros="packed")


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
def test_block_sizes(block: int) -> None:
    check((3,), 8, 256, block=block, zeros="packed", bias=True)


@pytest.mark.parametrize("k", [32 + 4, 32 + 7, 64 + 30])
def test_last_block_reaches_beyond_k(k: int) -> None:
    check((1,), 7, k, zeros="packed")
    check((5,), 8, k)


def test_zero_points_that_are_floats() -> None:
    check((5,), 12, 64, zeros="float")


def test_group_index() -> None:
    """onnxruntime is wrong where there are packed zero points too: even blocks in their order change the result."""
    check((5,), 12, 128, index=True)
    check((5,), 12, 128, index=True, zeros="packed", by_the_host=True)


@pytest.mark.parametrize("n", [8, 10])
def test_half_precision(n: int) -> None:
    check((5,), n, 64, dtype="float16", zeros="packed", bias=True)
    check((1,), n, 64, dtype="float16", zeros="packed", bias=True)


def test_weights_that_are_fed() -> None:
    check((5,), 9, 64, zeros="packed", constants=())


@pytest.mark.parametrize(
    "form",
    [None, *nbits_tile.FORMS, *nbits_tile.TALL],
    ids=lambda f: f"{f.body}{f.rows}-{f.lanes}-{f.loader}" if f else "any",
)
@pytest.mark.parametrize("bits", [4, 8])
def test_every_form(form: Form | None, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this adapter's subgroups, for however few rows; and the kernel that needs nothing of a device."""
    if form is not None:
        needs = subgroups(device().target.subgroup_sizes[0], {}) if form.lanes else {}
        form = replace(form, requires=needs, least=0, most=0)
    monkeypatch.setattr(nbits_tile, "FORMS", () if form is None else (form,))
    monkeypatch.setattr(nbits_tile, "TALL", ())
    for lead, n, k, more in (
        ((9,), 76, 96, {"block": 16, "zeros": "packed", "bias": True}),
        ((2, 3), 8, 64, {"block": 64, "zeros": "float"}),
        ((1,), 4, 72, {}),
        ((7,), 132, 64, {"dtype": "float16"}),
    ):
        plan = check(lead, n, k, bits=bits, **more)
        step = next(s for s in plan.steps if isinstance(s, Dispatch))
        layout = kernel_layout(plan.kernels[step.alternatives[0][0]].wgsl).access
        assert layout[1:3] == {"buffer": "rr", "sampled": "uf", "storage": "UF"}[form.loader if form else "buffer"]


@pytest.mark.parametrize("form", nbits_tile.TALL, ids=lambda f: f.loader)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_many_products_read_rows_through_a_texture(form: Form, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = subgroups(device().target.subgroup_sizes[0], {})
    monkeypatch.setattr(nbits_tile, "TALL", (replace(form, requires=needs, least=0),))
    monkeypatch.setattr(nbits_tile, "WORTH", 9 * 96 * 144)
    for lead, zeros, texture in (((9,), "", True), ((9,), "packed", True), ((8,), "", False), ((10,), "", False)):
        plan = check(lead, 144, 96, bits=8, block=16, zeros=zeros, dtype=dtype)
        made = [plan.kernels[a[0]] for s in plan.steps if isinstance(s, Dispatch) for a in s.alternatives]
        layouts = {kernel_layout(k.wgsl).access[0] for k in made}
        assert bool(layouts & set("fuFU")) == texture


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_gathered_blocks_of_small_numbers(name: str) -> None:
    """GatherBlockQuantized of numbers that are not packed; onnxruntime cannot be fed them as arrays."""
    kind = numpy_dtype(BY_NAME[name])
    low, high = (-8, 8) if name == "int4" else (0, 16)
    data, zeros = (RNG.integers(low, high, shape).astype(kind) for shape in ((3, 32, 5), (3, 2, 5)))
    scales, indices = RNG.uniform(0.1, 1, (3, 2, 5)).astype(np.float32), np.array([[-1, 0], [4, 2]])
    attrs = {"block_size": 16, "quantize_axis": 1, "gather_axis": 2}
    for offsets in ([], [zeros]):
        inputs = [data, indices, scales, *offsets]
        model, feeds = node_model("GatherBlockQuantized", inputs, attrs, domain="com.microsoft")
        want = list(run_model(model, feeds).values())
        check_node("GatherBlockQuantized", inputs, attrs, domain="com.microsoft", expected=want, symbolic=[1])
