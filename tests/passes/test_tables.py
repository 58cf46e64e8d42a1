"""A slice of a table to a free size, added to what has that size: so has the sum; beyond the table it is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.kernels.harness import device
from tests.passes.harness import compiled, dispatches, parse
from webrt.errors import InputError, WebrtError
from webrt.host import CpuProvider
from webrt.inference import InferenceSession
from webrt.runtime.session import Session

BODY = (
    " { s = Shape<start=1, end=2>(x)  t = Slice(table, zero, s, one)"
    "  a = Add(x, t)  r = Relu(a)  b = Add(r, x)  m = ReduceSum<keepdims=0>(b, two)  y = Mul(b, x) }"
)
INTS = {name: np.array([k], np.int64) for k, name in enumerate(("zero", "one", "two"))}
REFUSED = "Add 'sum': sizes min(512, s) and s do not broadcast (512 and 513 here)"


def model(rows: int) -> onnx.ModelProto:
    """y [n, s, 4] and m [n, s] of x [n, s, 4] and a table [1, rows, 4]; its first Add is named "sum"."""
    made = parse(f"g (float[n, s, 4] x) => (float[n, s, 4] y, float[n, s] m) {BODY}", {"table": table(rows), **INTS})
    made.graph.node[2].name = "sum"
    return made


def table(rows: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((1, rows, 4)).astype(np.float32)


def image(size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((2, size, 4)).astype(np.float32)


def expected(x: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    b = np.maximum(x + rows[:, : x.shape[1]], 0) + x
    return [b * x, b.sum(2)]


@pytest.mark.parametrize("rows", [1, 2, 512])
def test_every_size_that_fits(rows: int) -> None:
    made = model(rows)
    with Session(compiled(made), device(), CpuProvider()) as session:
        for size in [0, 1, 2, 511, 512, *([3, 513] if rows == 1 else [])]:
            if rows == 1 or size <= rows:
                x = image(size)
                fixed = compiled(made, free_dims={"n": 2, "s": size})
                with Session(fixed, device(), CpuProvider()) as twin:
                    both = zip(session.run(None, {"x": x}), twin.run(None, {"x": x}), expected(x, table(rows)))
                    for free, got, want in both:
                        assert free.shape == want.shape
                        np.testing.assert_array_equal(free, got)
                        np.testing.assert_allclose(free, want, rtol=1e-5, atol=1e-5)


def test_beyond_the_table_the_node_and_the_numbers_are_named() -> None:
    plan = compiled(model(512))
    with Session(plan, device(), CpuProvider()) as session:
        with pytest.raises(InputError) as e:
            session.run(None, {"x": image(513)})
        assert str(e.value) == REFUSED
        assert session.run(None, {"x": image(512)})[0].shape == (2, 512, 4)


def test_beyond_the_table_the_host_refuses_too() -> None:
    with InferenceSession(model(512).SerializeToString(), providers=["CPUExecutionProvider"]) as session:
        assert session.run(None, {"x": image(512)})[1].shape == (2, 512)
        with pytest.raises(WebrtError, match="'sum'"):
            session.run(None, {"x": image(513)})


def test_the_sum_fuses_as_with_known_sizes() -> None:
    made = model(512)
    assert dispatches(compiled(made)) == dispatches(compiled(made, free_dims={"n": 2, "s": 16}))


def test_a_table_that_may_be_empty_keeps_its_own_sizes() -> None:
    """No row and a size of 1 broadcast to 0."""
    made = parse(f"g (float[n, s, 4] x, float[1, k, 4] table) => (float[n, q, 4] y, float[n, q] m) {BODY}", INTS)
    with Session(compiled(made), device(), CpuProvider()) as session:
        for rows, size, out in [(0, 1, 0), (0, 0, 0), (1, 3, 3), (5, 3, 3)]:
            y, m = session.run(None, {"x": image(size), "table": table(rows)})
            assert (y.shape, m.shape) == ((2, out, 4), (2, out))
            if out:
                np.testing.assert_allclose(y, expected(image(size), table(rows))[0], rtol=1e-5, atol=1e-5)
        with pytest.raises(InputError, match="do not broadcast"):
            session.run(None, {"x": image(3), "table": table(2)})
