"""DFT and STFT against numpy's transforms (onnxruntime lacks several forms)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node, node_model, run_native
from tests.tolerance import close
from webrt.ops.spectral import MAX_MATRIX

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(23)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


def numbers(x: Array) -> Array:
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def check(x: Array, want: Array, axis: int, length: int | None = None, **attrs: int) -> None:
    sizes = None if length is None else np.array(length)
    inputs = [x, sizes, np.array(axis)]
    check_node("DFT", inputs, attrs, constants=[1, 2], expected=[want], atol=1e-4, symbolic=False)
    check_node("DFT", inputs[:2], {"axis": axis, **attrs}, opset=17, expected=[want], atol=1e-4, symbolic=False)
    check_free("DFT", inputs, want, attrs, constants=[1, 2])


def check_free(op: str, inputs: list[Array | None], want: Array, attrs: dict[str, int], constants: list[int]) -> None:
    """All sizes are free but the last, which says whether numbers are complex."""
    x = inputs[0]
    assert x is not None
    model, feeds = node_model(op, inputs, attrs, constants=constants, symbolic=[0])
    (got,), plan = run_native(model, feeds, free_dims={f"d0_{x.ndim - 1}": x.shape[-1]})
    assert not plan.host_steps
    close(got, want, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("length", [None, 5, 12])
def test_dft(parts: int, axis: int, length: int | None) -> None:
    x = normal(7, 9, 8, parts)
    at = axis if axis >= 0 else 2
    check(x, pairs(np.fft.fft(numbers(x), length, at)), axis, length)
    check(x, pairs(np.fft.ifft(numbers(x), length, at)), axis, length, inverse=1)


@pytest.mark.parametrize("length", [None, 6, 9, 16])
def test_one_side_and_back(length: int | None) -> None:
    x = normal(2, 10, 1)
    check(x, pairs(np.fft.rfft(x[..., 0], length, 1)), 1, length, onesided=1)
    y = normal(2, 6, 2)
    want = np.fft.irfft(numbers(y), length, 1)[..., None].astype(np.float32)
    check(y, want, 1, length, inverse=1, onesided=1)


def test_a_transform_too_large_for_a_matrix() -> None:
    x = normal(1, 2000, 1)
    assert MAX_MATRIX < 2000 * 4000
    want = pairs(np.fft.fft(x[..., 0], axis=1))
    check_node("DFT", [x], {"axis": 1}, opset=17, expected=[want], rtol=1e-3, atol=1e-3, symbolic=False)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [False, True])
def test_stft(onesided: int, window: bool) -> None:
    x, size, hop = normal(2, 50, 1), 12, 5
    w = np.hanning(size).astype(np.float32) if window else None
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], size, 1)[:, ::hop] * (1 if w is None else w)
    want = pairs((np.fft.rfft if onesided else np.fft.fft)(frames))
    inputs, attrs = [x, np.array(hop), w, np.array(size)], {"onesided": onesided}
    check_node("STFT", inputs, attrs, constants=[1, 3], expected=[want], symbolic=False)
    check_node("STFT", inputs, attrs, expected=[want], symbolic=False)
    check_free("STFT", inputs, want, attrs, constants=[1, 3])
