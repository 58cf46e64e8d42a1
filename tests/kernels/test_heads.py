"""com.microsoft's MultiHeadAttention and Attention against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(53)
N, S, L, H, HEAD = 2, 5, 7, 3, 8
WIDTH = H * HEAD


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def mha(inputs: list[Array | None], outputs: int = 1, dtype: str = "float32", **attrs: Any) -> None:
    given = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in inputs]
    loose = {"rtol": 1e-2, "atol": 2e-2} if dtype == "float16" else {}
    check_node(
        "MultiHeadAttention", given, {"num_heads": H, **attrs}, domain="com.microsoft", outputs=outputs, symbolic=False,
        **loose,
    )  # fmt: skip


def test_separate_and_packed_inputs() -> None:
    mha([normal(N, S, WIDTH), normal(N, L, WIDTH), normal(N, L, WIDTH)])
    mha([normal(N, S, WIDTH), normal(N, L, WIDTH), normal(N, L, H * 4)])
    mha([normal(N, S, H, 3, HEAD)])
    mha([normal(N, S, WIDTH), normal(N, L, H, 2, HEAD)])
    mha([normal(N, S, WIDTH), normal(N, H, L, HEAD), normal(N, H, L, HEAD)])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bias_scale_and_future(dtype: str) -> None:
    q, k, v = normal(N, S, WIDTH), normal(N, S, WIDTH), normal(N, S, WIDTH)
    mha([q, k, v, normal(3 * WIDTH)], dtype=dtype, scale=0.2)
    mha([q, k, v], dtype=dtype, unidirectional=1)


def test_cache() -> None:
    q, k, v = normal(N, S, WIDTH), normal(N, S, WIDTH), normal(N, S, WIDTH)
    past = [normal(N, H, 4, HEAD), normal(N, H, 4, HEAD)]
    mha([q, k, v, None, None, None, *past], outputs=3)
    mha([q, k, v, normal(3 * WIDTH), None, None, *past], outputs=3, unidirectional=1)


@pytest.mark.parametrize("shape", [(1, H, S, L), (N, H, S, L), (1, 1, S, L), (N, 1, S, L)])
def test_attention_bias(shape: tuple[int, ...]) -> None:
    mha([normal(N, S, WIDTH), normal(N, L, WIDTH), normal(N, L, WIDTH), None, None, normal(*shape)])


@pytest.mark.parametrize(
    "mask",
    [
        np.array([3, L], np.int32),
        np.array([3, L, 0, 2, 7, 0, 0, 0][: 3 * N + 2], np.int32),
        RNG.integers(0, 2, (N, L)).astype(np.int32),
        RNG.integers(0, 2, (N, S, L)).astype(np.int32),
    ],
)
def test_padding_mask(mask: Array) -> None:
    mha([normal(N, S, WIDTH), normal(N, L, WIDTH), normal(N, L, WIDTH), None, mask])


def test_free_sizes() -> None:
    """Batch and lengths are free; the widths are not."""
    from tests.kernels.harness import node_model, oracle, run_native
    from tests.tolerance import close

    inputs = [normal(N, S, WIDTH), normal(N, L, WIDTH), normal(N, L, WIDTH)]
    attrs = {"num_heads": H}
    model, feeds = node_model("MultiHeadAttention", inputs, attrs, domain="com.microsoft", symbolic=True)
    got, plan = run_native(model, feeds, free_dims={f"d{k}_2": WIDTH for k in range(3)})
    assert not plan.host_steps
    close(got[0], oracle(model, feeds)[0])


def own(inputs: list[Array | None], outputs: int = 1, **attrs: Any) -> None:
    check_node(
        "Attention", inputs, {"num_heads": H, **attrs}, domain="com.microsoft", outputs=outputs, symbolic=False,
        constants=[1, 2],
    )  # fmt: skip


def test_attention_with_projections() -> None:
    x, w, bias = normal(N, S, 10), normal(10, 3 * WIDTH) * np.float32(0.3), normal(3 * WIDTH)
    own([x, w, bias])
    own([x, w, bias, np.array([4, 2], np.int32)])
    own([x, w, bias, np.ones((N, S + 4), np.int32), normal(2, N, H, 4, HEAD)], outputs=2, unidirectional=1)
    wide = normal(10, 2 * WIDTH + H * 4) * np.float32(0.3)
    own([x, wide, normal(2 * WIDTH + H * 4)], qkv_hidden_sizes=[WIDTH, WIDTH, H * 4])
