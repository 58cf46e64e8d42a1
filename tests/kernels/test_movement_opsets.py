"""Every operator of the family at every opset that has it: placement and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.defs
import pytest

from tests.kernels.harness import check_node
from tests.kernels.test_movement_views import i64, sample

NEWEST = onnx.defs.onnx_opset_version()
X = sample((2, 4, 6))
PICTURE = sample((1, 4, 4, 6))
WHERE = np.array([[0, 1, 1]], np.int64)


@dataclass(frozen=True)
class Form:
    """One way to write an operator: valid from opset `since` to `until`; all inputs but the first are constants."""

    op: str
    since: int
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    until: int = NEWEST
    outputs: int = 1
    fed: bool = False


FORMS = [
    Form("Reshape", 7, (X, i64(4, -1))),
    Form("Flatten", 7, (X,), {"axis": 2}),
    Form("Squeeze", 7, (X[:1],), {"axes": [0]}, 12),
    Form("Squeeze", 13, (X[:1], i64(0))),
    Form("Unsqueeze", 7, (X,), {"axes": [0, 2]}, 12),
    Form("Unsqueeze", 13, (X, i64(0, 2))),
    Form("Identity", 7, (X,)),
    Form("Shape", 7, (X,)),
    Form("Size", 7, (X,)),
    Form("Transpose", 7, (X,), {"perm": [1, 2, 0]}),
    Form("Concat", 7, (X, X), {"axis": 1}, fed=True),
    Form("Split", 7, (X,), {"axis": 1, "split": [1, 3]}, 12, 2),
    Form("Split", 13, (X, i64(1, 3)), {"axis": 1}, outputs=2),
    Form("Split", 7, (X,), {"axis": 2}, 17, 3),
    Form("Split", 18, (X,), {"axis": 2, "num_outputs": 3}, outputs=3),
    Form("Slice", 7, (X,), {"starts": [1, 0], "ends": [4, -1], "axes": [1, 2]}, 9),
    Form("Slice", 10, (X, i64(-1), i64(0), i64(1), i64(-2))),
    Form("Expand", 8, (X, i64(3, 1, 1, 1))),
    Form("Tile", 7, (X, i64(1, 2, 1))),
    Form("Pad", 7, (X,), {"pads": [0, 1, 0, 0, 0, 2], "value": 2.0}, 10),
    Form("Pad", 11, (X, i64(0, 1, 0, 0, 0, 2), np.float32(2.0))),
    Form("Gather", 7, (X, WHERE), {"axis": 1}),
    Form("GatherElements", 11, (X[0], WHERE), {"axis": 0}),
    Form("GatherND", 11, (X, WHERE)),
    Form("Scatter", 9, (X[0], WHERE, X[0, :1, :3]), {"axis": 0}, 10),
    Form("ScatterElements", 11, (X[0], WHERE, X[0, :1, :3]), {"axis": 0}),
    Form("ScatterND", 11, (X, WHERE, X[0, 0, :1])),
    Form("OneHot", 9, (WHERE, i64(3), np.array([0, 2], np.float32)), {"axis": 0}),
    Form("Trilu", 14, (X, i64(1).reshape(())), {"upper": 0}),
    Form("EyeLike", 9, (X[0],), {"k": 1}),
    Form("DepthToSpace", 7, (PICTURE,), {"blocksize": 2}),
    Form("DepthToSpace", 11, (PICTURE,), {"blocksize": 2, "mode": "CRD"}),
    Form("SpaceToDepth", 7, (PICTURE,), {"blocksize": 2}),
    Form("ReverseSequence", 10, (X, i64(1, 0, 2, 2))),
    Form("CenterCropPad", 18, (X, i64(5, 3)), {"axes": [1, 2]}),
    Form("Upsample", 7, (PICTURE,), {"scales": [1.0, 1.0, 2.0, 2.0]}, 8),
    Form("Upsample", 9, (PICTURE, np.array([1, 1, 2, 2], np.float32)), {"mode": "linear"}, 9),
    Form("Resize", 10, (PICTURE, np.array([1, 1, 2, 2], np.float32)), {"mode": "linear"}, 10),
    Form("Resize", 11, (PICTURE, np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)), {"mode": "cubic"}),
    Form("Resize", 13, (PICTURE, None, None, i64(1, 4, 3, 5)), {"mode": "linear"}),
    Form("GridSample", 16, (PICTURE, sample((1, 3, 3, 2)))),
    Form("AffineGrid", 20, (sample((1, 2, 3)), i64(1, 1, 2, 3))),
    Form("Col2Im", 18, (sample((1, 4, 6)), i64(3, 4), i64(2, 2))),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.op}-{f.since}")
def test_every_opset(form: Form) -> None:
    constants = () if form.fed else range(1, len(form.inputs))
    for opset in range(form.since, form.until + 1):
        inputs = list(form.inputs)
        check_node(form.op, inputs, form.attrs, opset=opset, outputs=form.outputs, constants=constants, symbolic=False)
