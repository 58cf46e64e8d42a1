"""Integers of 2 and 4 bits and floats of 4 and 8 bits in player.js: bytes in, bytes out, by the type's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.web.driver import Player
from webrt import dtypes as T
from webrt.compiler.compile import compile_model
from webrt.errors import InputError
from webrt.runtime.tensor import numpy_dtype

pytestmark = pytest.mark.xdist_group("chromium")


def model(code: int) -> onnx.ModelProto:
    """The feed's numbers, and those of `z` as the type."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=1), helper.make_node("CastLike", ["z", "x"], ["w"], saturate=0)]
    graph = helper.make_graph(
        nodes, "g", [info("x", code, ["n"]), info("z", 1, ["n"])], [info("y", 1, ["n"]), info("w", code, ["n"])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


@pytest.mark.parametrize("dtype", sorted(T.SMALL, key=str), ids=str)
def test_all_values(dtype: T.DType, player: Player) -> None:
    x = np.arange(1 << dtype.width, dtype=np.uint8).view(numpy_dtype(dtype))
    numbers = x.astype(np.float32)
    session = player.load(compile_model(model(dtype.code)))
    try:
        got = session.run({"x": x, "z": numbers})
        refused = {"x": {"dtype": dtype.name, "dims": [1], "list": [1]}, "z": numbers[:1]}
        with pytest.raises(InputError, match="its bits are expected, as a Uint8Array"):
            session.run(refused)
        on_device = session.run({"x": x, "z": numbers}, location="gpu")["w"]
    finally:
        session.release()
    np.testing.assert_array_equal(got["y"], numbers)
    np.testing.assert_array_equal(got["w"].astype(np.float32), numbers)
    assert got["w"].dtype == x.dtype and on_device["dtype"] == dtype.name
