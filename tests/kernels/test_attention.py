"""com.microsoft's GroupQueryAttention against onnxruntime: prompt, next token, cache, rotary, window, packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(17)
HEADS, GROUPS, SIZE = 4, 2, 16


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def check(
    steps: int, past: int, lengths: list[int], attrs: dict[str, Any], *, packed: bool = False, bias: bool = False
) -> None:
    batch, total = len(lengths), max(lengths) + 1
    q, k, v = (normal(batch, steps, heads * SIZE) for heads in (HEADS, GROUPS, GROUPS))
    cache = [normal(batch, GROUPS, past, SIZE) for _ in "kv"]
    angles = RNG.uniform(0, 6, (64, SIZE // 2))
    turn = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)] if attrs.get("do_rotary") else []
    inputs: list[Array | None] = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs += [*cache, np.array(lengths, np.int32), np.array([total], np.int32), *(turn or [None, None])]
    if bias:
        inputs += [None, normal(1, HEADS, steps, total)]
    check_node(
        "GroupQueryAttention", inputs, {"num_heads": HEADS, "kv_num_heads": GROUPS, **attrs}, domain="com.microsoft",
        outputs=3, constants=[6], symbolic=False,
    )  # fmt: skip


@pytest.mark.parametrize("attrs", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"scale": 0.3}])
def test_prompt_and_next_token(attrs: dict[str, Any]) -> None:
    check(5, 0, [4], attrs)
    check(1, 7, [7, 7], attrs)
    check(3, 6, [8], attrs)


def test_packed_window_cap_and_bias() -> None:
    check(5, 0, [4], {"do_rotary": 1}, packed=True)
    check(6, 0, [5], {"local_window_size": 3})
    check(5, 0, [4], {"softcap": 2.0})
    check(1, 7, [7, 7], {}, bias=True)


def test_entries_of_different_length() -> None:
    check(1, 7, [7, 4], {"do_rotary": 1})
