"""The table of costs: which variant comes first, by adapter and sizes; what damages it; and what webrt comes with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from onnx import parser

from webrt import costs
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.costs import CostTable, label
from webrt.errors import WebrtError
from webrt.plan import Dispatch, Plan
from webrt.target import BASE, PRESETS, Target

SWIFTSHADER, LAVAPIPE = PRESETS["swiftshader"], PRESETS["lavapipe"]
KEY = ("software swiftshader", "matmul_tile", (1, 64, 64, 64))
WIDE = "ROWS 16, VECTORS 2, LANES 4, SPAN 8, b sampled"
LOW = "ROWS 8, VECTORS 2, LANES 4, SPAN 8, b sampled"
PLAIN = "ROWS 8, VECTORS 2, b sampled"
BUFFERS = "ROWS 8, VECTORS 2"


def product(rows: Any, target: Target = SWIFTSHADER) -> Plan:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{rows},64] a, float[64,64] b) => (float[{rows},64] y)'
    return compile_model(parser.parse_model(text + "{ y = MatMul(a, b) }"), CompileOptions(target=target))


def labels(plan: Plan) -> list[str]:
    (step,) = [s for s in plan.steps if isinstance(s, Dispatch)]
    return [label(plan.kernels[kernel]) for kernel, *_ in step.alternatives]


@pytest.fixture
def use() -> Iterator[Any]:
    with ExitStack() as stack:

        def use(us: Mapping[str, float], key: costs.Key = KEY) -> None:
            stack.enter_context(costs.use(CostTable({key: us})))

        yield use


def test_the_table_says_which_variant_comes_first(use: Any) -> None:
    use({})
    assert labels(product(64)) == [WIDE, BUFFERS]
    use({WIDE: 100.0, LOW: 50.0, BUFFERS: 70.0})
    assert labels(product(64)) == [LOW, BUFFERS]
    use({WIDE: 100.0, LOW: 120.0, BUFFERS: 70.0})
    assert labels(product(64)) == [BUFFERS]


def test_without_a_row_the_order_stands(use: Any) -> None:
    use({LOW: 1.0, WIDE: 9.0}, ("software swiftshader", "matmul_tile", (1, 1024, 64, 64)))
    assert labels(product(64))[0] == WIDE
    use({LOW: 1.0, WIDE: 9.0}, ("software llvmpipe", "matmul_tile", (1, 64, 64, 64)))
    assert labels(product(64))[0] == WIDE
    use({LOW: 1.0, WIDE: 9.0}, ("software swiftshader", "conv_last", (1, 64, 64, 64)))
    assert labels(product(64))[0] == WIDE
    before = labels(product(64, BASE))
    use({LOW: 1.0, WIDE: 9.0}, ("any", "matmul_tile", (1, 2048, 64, 64)))
    assert labels(product(64, BASE)) == before


def test_sizes_of_a_run_have_no_row(use: Any) -> None:
    use({})
    before = labels(product("n"))
    use({LOW: 1.0, WIDE: 9.0})
    assert labels(product("n")) == before


def test_what_is_hardly_faster_does_not_come_first(use: Any) -> None:
    use({WIDE: 100.0, LOW: 96.0})
    assert labels(product(64))[0] == WIDE


def test_what_an_adapter_lacks_never_comes_first(use: Any) -> None:
    use({"ROWS 8, VECTORS 2, a storage, b storage": 1.0, WIDE: 9.0, LOW: 8.0})
    assert labels(product(64))[0] == LOW


def test_the_nearest_sizes_count_up_to_a_factor_of_two() -> None:
    rows = {("software swiftshader", "f", (n, 8)): {"a": float(n), "b": 1.0} for n in (16, 64)}
    table = CostTable(rows)
    assert table.costs(SWIFTSHADER, "f", (60, 8))["a"] == 64
    assert table.costs(SWIFTSHADER, "f", (20, 8))["a"] == 16
    assert table.costs(SWIFTSHADER, "f", (129, 8)) == {}
    assert table.costs(SWIFTSHADER, "f", (64, 8, 1)) == {}
    assert table.costs(LAVAPIPE, "f", (64, 8)) == {}


def test_rows_of_other_adapters_stay_when_one_is_measured() -> None:
    old = CostTable({KEY: {"a": 1.0, "b": 2.0}, ("gpu x", *KEY[1:]): {"a": 3.0, "b": 4.0}})
    merged = old.merged(CostTable({KEY: {"a": 5.0, "c": 6.0}}))
    assert merged.rows == {**old.rows, KEY: {"a": 5.0, "c": 6.0}}
    assert costs.loads(merged.dumps()) == merged


def test_the_table_that_webrt_comes_with_is_as_the_tool_writes_it() -> None:
    text = costs.FILE.read_text(encoding="utf-8")
    assert costs.loads(text).dumps() == text and len(text) < 30_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version"),
        ({"rows": {}}, "no list"),
        ({"more": 1}, "keys"),
        ({"rows": [{"adapter": "a"}]}, "row 0: its keys"),
        ({"rows": [{"adapter": 1, "family": "f", "sizes": [], "us": {"a": 1, "b": 1}}]}, "no texts"),
        ({"rows": [{"adapter": "a", "family": "f", "sizes": [3], "us": {"a": 1, "b": 1}}]}, "powers of two"),
        ({"rows": [{"adapter": "a", "family": "f", "sizes": [-4], "us": {"a": 1, "b": 1}}]}, "its sizes"),
        ({"rows": [{"adapter": "a", "family": "f", "sizes": [4], "us": {"a": 1}}]}, "compares nothing"),
        ({"rows": [{"adapter": "a", "family": "f", "sizes": [4], "us": {"a": 1, "b": True}}]}, "its times"),
        ({"rows": [{"adapter": "a", "family": "f", "sizes": [4], "us": {"a": 1, "b": 0}}]}, "its times"),
        ({"rows": [{"adapter": "a", "family": "f", "sizes": [4], "us": {"a": 1, "b": 1}}] * 2}, "for the same"),
    ],
)
def test_a_damaged_table_says_what_is_wrong(change: Mapping[str, Any], said: str) -> None:
    with pytest.raises(WebrtError, match=f"table of costs is damaged.*{said}"):
        costs.loads(json.dumps({"version": 1, "rows": [], **change}))
    with pytest.raises(WebrtError, match="no JSON"):
        costs.loads("{")
