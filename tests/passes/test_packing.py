"""Projections by packed weights as one product: where, and where not."""

from __future__ import annotations

import onnx
import pytest

from tests.models.test_decoding import decoder
from tests.passes.harness import compiled
from webrt.plan import Plan


def products(plan: Plan) -> int:
    return sum(p.op == "com.microsoft:MatMulNBits" for p in plan.placement)


def test_queries_keys_and_values_are_one_product() -> None:
    assert products(compiled(decoder(), disabled={"pack_projections"})) == 5
    assert products(compiled(decoder())) == 3


def changed(what: str) -> onnx.ModelProto:
    model = decoder()
    by_output = {o: n for n in model.graph.node for o in n.output}
    if what == "output":
        model.graph.output.append(onnx.helper.make_tensor_value_info("k", onnx.TensorProto.FLOAT, None))
    elif what == "reader":
        model.graph.node.append(onnx.helper.make_node("Neg", ["v"], ["negative"]))
        model.graph.output.append(onnx.helper.make_tensor_value_info("negative", onnx.TensorProto.FLOAT, None))
    elif what == "input":
        by_output["v"].input[0] = "x"
    elif what == "attribute":
        by_output["q"].attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    return model


@pytest.mark.parametrize("what", ["output", "reader", "input", "attribute"])
def test_products_that_differ_or_are_read_elsewhere_stay(what: str) -> None:
    assert products(compiled(changed(what))) == 5
