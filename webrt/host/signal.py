"""Fourier transforms, windows and the mel scale."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, np_dtype, wide


def _complex(x: Array) -> Array:
    """A tensor whose last axis is [real] or [real, imaginary], as numbers."""
    w = wide(x)
    if x.shape[-1] == 1:
        return w[..., 0]
    if x.shape[-1] != 2:
        raise ShapeError(f"the last axis has size {x.shape[-1]}; it must be 1 (real) or 2 (complex)")
    return np.asarray(w[..., 0] + 1j * w[..., 1])


def _pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


@op("DFT", until=20)
def dft_attribute(call: Call, x: Array, length: Array | None = None) -> Array:
    """The discrete Fourier transform along an axis that is an attribute."""
    return _dft(call, x, length, call.integer("axis"))


@op("DFT", since=20)
def dft(call: Call, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
    """The discrete Fourier transform along an axis that is an input."""
    return _dft(call, x, length, -2 if axis is None else int(axis.reshape(-1)[0]))


def _dft(call: Call, x: Array, length: Array | None, axis: int) -> Array:
    where = normal_axis(axis, x.ndim)
    if where == x.ndim - 1:
        raise ShapeError("the last axis holds real and imaginary parts and cannot be transformed")
    inverse, onesided = bool(call.integer("inverse")), bool(call.integer("onesided"))
    n = x.shape[where] if length is None else int(length.reshape(-1)[0])
    if inverse and onesided:
        n = 2 * (x.shape[where] - 1) if length is None else n
        return np.fft.irfft(_complex(x), n, where)[..., None].astype(x.dtype)
    if inverse:
        return _pairs(np.fft.ifft(_complex(x), n, where)).astype(x.dtype)
    result = np.fft.fft(_complex(x), n, where)
    if onesided:
        result = np.take(result, np.arange(n // 2 + 1), where)
    return _pairs(np.asarray(result)).astype(x.dtype)


@op("STFT")
def stft(call: Call, signal: Array, step: Array, window: Array | None = None, length: Array | None = None) -> Array:
    """Transforms of windowed frames: [batch, frames, frequencies, 2]."""
    hop = int(step.reshape(-1)[0])
    size = int(length.reshape(-1)[0]) if length is not None else signal.shape[1] if window is None else window.size
    if hop <= 0 or size > signal.shape[1] or (window is not None and window.size != size):
        raise ShapeError(f"frames of {size} every {hop} do not fit a signal of {signal.shape[1]}; check the window too")
    values = _complex(signal) if signal.ndim == 3 else wide(signal)
    frames = np.lib.stride_tricks.sliding_window_view(values, size, axis=1)[:, ::hop]
    weights = np.ones(size) if window is None else wide(window)
    result = np.fft.fft(frames * weights, axis=-1)
    if call.integer("onesided"):
        result = result[..., : size // 2 + 1]
    return _pairs(result).astype(signal.dtype)


def _register_window(name: str, coefficients: tuple[float, ...]) -> None:
    @op(name)
    def window(call: Call, size: Array) -> Array:
        n = int(size.reshape(-1)[0])
        turns = np.arange(n) * (2 * np.pi / max(n if call.integer("periodic") else n - 1, 1))
        total = sum(c * np.cos(i * turns) for i, c in enumerate(coefficients))
        return np.asarray(total).astype(np_dtype(call.integer("output_datatype")))


_register_window("HannWindow", (0.5, -0.5))
_register_window("HammingWindow", (25 / 46, -21 / 46))
_register_window("BlackmanWindow", (0.42, -0.5, 0.08))


@op("MelWeightMatrix")
def mel_weight_matrix(call: Call, bins: Array, length: Array, rate: Array, low: Array, high: Array) -> Array:
    """Triangular filters [frequencies, mel bins] with peaks of 1 on the mel scale."""
    count, size, samples = (int(v.reshape(-1)[0]) for v in (bins, length, rate))
    ends = np.array([float(low.reshape(-1)[0]), float(high.reshape(-1)[0])])
    mel_low, mel_high = 2595 * np.log10(1 + ends / 700)
    mels = np.arange(count + 2) * ((mel_high - mel_low) / (count + 2)) + mel_low
    points = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // samples).astype(np.int64)
    result = np.zeros((size // 2 + 1, count))
    for i in range(count):
        left, centre, right = (int(p) for p in points[i : i + 3])
        if left == centre:
            result[centre, i] = 1
        else:
            rise = np.arange(left, centre + 1)
            result[rise, i] = (rise - left) / (centre - left)
        fall = np.arange(centre, right)
        if right > centre:
            result[fall, i] = (right - fall) / (right - centre)
    return result.astype(np_dtype(call.integer("output_datatype")))
