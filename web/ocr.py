"""PP-OCRv4's recogniser around its network: from pixels to its input, from its output to text.

The page and examples/ocr_demo.py both use this file. Source of sizes, order of channels and decoding:
rapidocr-onnxruntime 1.4.4, ch_ppocr_rec/text_recognize.py and ch_ppocr_rec/utils.py (Apache-2.0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

HEIGHT = 48
LEAST_WIDTH = 320


def network_input(rgb: Array) -> Array:
    """A picture of one line of text, uint8[height, width, 3], as float32[1, 3, 48, W], W at least 320.

    Channels are blue, green, red in -1 … 1; what is right of the picture is 0.
    """
    height, width = rgb.shape[:2]
    scaled = math.ceil(HEIGHT * width / height)
    pixels = resize(rgb[:, :, ::-1].astype(np.float32), HEIGHT, scaled)
    out = np.zeros((1, 3, HEIGHT, max(scaled, LEAST_WIDTH)), np.float32)
    out[0, :, :, :scaled] = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return out


def resize(image: Array, height: int, width: int) -> Array:
    """float32[h, w, channels] to float32[height, width, channels], bilinear between pixel centres."""
    rows, row_part = _neighbours(image.shape[0], height)
    columns, column_part = _neighbours(image.shape[1], width)
    across = image[:, columns[0]] * (1 - column_part)[:, None] + image[:, columns[1]] * column_part[:, None]
    down = across[rows[0]] * (1 - row_part)[:, None, None] + across[rows[1]] * row_part[:, None, None]
    return np.asarray(down, np.float32)


def characters(metadata: dict[str, str]) -> list[str]:
    """What each class of the output means: class 0 is the blank, the last one a space."""
    return ["", *metadata["character"].splitlines(), " "]


def text_of(probabilities: Array, alphabet: Sequence[str]) -> tuple[str, float]:
    """The text in float32[1, steps, classes] and the mean probability of its characters.

    Greedy CTC: the best class of each step, repetitions merged, blanks dropped.
    """
    best = probabilities[0].argmax(axis=1)
    kept = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
    sure = probabilities[0].max(axis=1)[kept]
    text = "".join(alphabet[i] for i in best[kept]).strip()
    return text, float(sure.mean()) if sure.size else 0.0


def _neighbours(size: int, wanted: int) -> tuple[tuple[Array, Array], Array]:
    """For each of `wanted` positions the two nearest of `size`, and the share of the second."""
    at = np.clip((np.arange(wanted) + 0.5) * size / wanted - 0.5, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    return (low, np.minimum(low + 1, size - 1)), (at - low).astype(np.float32)
