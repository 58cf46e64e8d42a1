"""Random operators: types, shapes and statistics; a seed gives the same numbers again, none gives new ones."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.kernels.harness import Array, device, node_model
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.runtime.session import RunStats, Session

N = 20_000
LIKE = np.zeros((4, N // 4), np.float32)
U = np.uint64


def draw(
    op: str, *inputs: Array | None, opset: int = 22, outputs: int = 1, **attrs: Any
) -> tuple[list[Array], list[Array], RunStats]:
    """The outputs of two runs of a node on the device alone, and what the second did."""
    model, feeds = node_model(op, inputs, attrs, opset=opset, outputs=outputs)
    with Session(compile_model(model, CompileOptions(target=device().target)), device()) as session:
        first, second = ([np.asarray(x) for x in session.run(None, feeds)] for _ in range(2))
        return first, second, session.last_run


def philox(counters: Array, key: tuple[int, int]) -> Array:
    """Philox4x32-10 of counters [n, 4], by its paper."""
    c, k = counters.astype(U), [U(key[0]), U(key[1])]
    for _ in range(10):
        a, b = U(0xD2511F53) * c[:, 0], U(0xCD9E8D57) * c[:, 2]
        low, shift = U(0xFFFFFFFF), U(32)
        c = np.stack([(b >> shift) ^ c[:, 1] ^ k[0], b & low, (a >> shift) ^ c[:, 3] ^ k[1], a & low], 1)
        k = [(k[0] + U(0x9E3779B9)) & low, (k[1] + U(0xBB67AE85)) & low]
    return c


def test_the_generator_is_philox() -> None:
    known = philox(np.zeros((1, 4)), (0, 0))[0]
    assert [f"{int(w):08x}" for w in known] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    (got,), *_ = draw("RandomUniform", shape=[7, 11], seed=1.5)
    counters = np.zeros((77, 4))
    counters[:, 0] = np.arange(77)
    words = philox(counters, (0x3FC00000, zlib.crc32(b"y0")))[:, 0]
    np.testing.assert_array_equal(got.reshape(-1), (words >> U(8)).astype(np.float32) / 2**24)


@pytest.mark.parametrize("op", ["RandomUniform", "RandomNormal"])
def test_a_seed_repeats_and_none_does_not(op: str) -> None:
    for like in (False, True):
        name, inputs, shape = (f"{op}Like", [LIKE], {}) if like else (op, [], {"shape": [4, N // 4]})
        (a,), (b,), _ = draw(name, *inputs, seed=3.0, **shape)
        (other,), *_ = draw(name, *inputs, seed=4.0, **shape)
        (c,), (d,), stats = draw(name, *inputs, **shape)
        np.testing.assert_array_equal(a, b)
        assert np.mean(a == other) < 0.01
        assert np.mean(c == d) < 0.01
        assert (stats.buffers, stats.pipelines, stats.submits, stats.host_nodes) == (0, 0, 1, 0)


def test_uniform_numbers_fill_their_range() -> None:
    (x,), *_ = draw("RandomUniform", shape=[N], low=-2.0, high=6.0, seed=1.0)
    assert x.dtype == np.float32 and x.min() >= -2 and x.max() <= 6
    assert np.ptp(np.histogram(x, 8, (-2, 6))[0]) < 350
    assert abs(x.mean() - 2) < 0.06 and abs(x.std() - 8 / 12**0.5) < 0.06
    (x,), *_ = draw("RandomUniformLike", LIKE, dtype=TensorProto.FLOAT16, seed=1.0)
    assert x.dtype == np.float16 and x.shape == LIKE.shape


def test_normal_numbers_have_their_moments() -> None:
    (x,), *_ = draw("RandomNormal", shape=[N], mean=5.0, scale=2.0, seed=2.0)
    z = (x - 5) / 2
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03
    assert abs((z**3).mean()) < 0.1 and abs((z**4).mean() - 3) < 0.3
    assert abs(np.mean(np.abs(z) < 1) - 0.6827) < 0.02


@pytest.mark.parametrize("kind", ["FLOAT", "BOOL", "INT64", "UINT8", "INT32"])
def test_bernoulli_draws_with_the_given_probability(kind: str) -> None:
    p = np.repeat(np.array([0, 0.25, 0.75, 1], np.float32)[:, None], N // 4, 1)
    (x,), (y,), _ = draw("Bernoulli", p, dtype=TensorProto.DataType.Value(kind))
    assert x.shape == p.shape and set(np.unique(x).tolist()) == {0, 1}
    assert np.abs(x.astype(np.float64).mean(1) - [0, 0.25, 0.75, 1]).max() < 0.03
    assert (x != y).any()


def test_multinomial_draws_classes_by_weight() -> None:
    weights = np.array([[1, 2, 0, 5], [4, 4, 1, 1]], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(weights) + np.array([[3], [-2]], np.float32)
    for code in (TensorProto.INT32, TensorProto.INT64):
        (x,), (y,), _ = draw("Multinomial", logits, sample_size=N // 4, dtype=code)
        assert x.shape == (2, N // 4)
        shares = np.stack([np.bincount(row, minlength=4) for row in x]) / x.shape[1]
        assert np.abs(shares - weights / weights.sum(1, keepdims=True)).max() < 0.03
        assert shares[0, 2] == 0 and (x != y).any()


@pytest.mark.parametrize("constants", [(), (1,), (2,), (1, 2)])
def test_dropout_in_training(constants: tuple[int, ...]) -> None:
    x = np.full((2, N // 2), 3, np.float32)
    model, feeds = node_model(
        "Dropout", [x, np.array(0.25, np.float32), np.array(True)], opset=13, outputs=2, constants=constants
    )
    with Session(compile_model(model, CompileOptions(target=device().target)), device()) as session:
        y, mask = session.run(None, feeds)
        _, again = session.run(None, feeds)
        if not constants:
            off, full = session.run(None, {**feeds, "x2": np.array(False)})
            np.testing.assert_array_equal(off, x)
            assert full.all()
    np.testing.assert_array_equal(y, np.where(mask, np.float32(4), 0))
    assert abs(mask.mean() - 0.75) < 0.02 and (mask != again).any()
    (a, m), (b, _), _ = draw("Dropout", x, None, np.array(True), opset=13, outputs=2, seed=1)
    np.testing.assert_array_equal(a, b)
    assert abs(m.mean() - 0.5) < 0.02


def test_nodes_without_a_seed_differ() -> None:
    """Equal nodes are not merged and draw from streams of their own."""
    import onnx.parser

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> m (float[64] x) => (float[64] a, float[64] b) '
        "{ a = RandomUniformLike (x) b = RandomUniformLike (x) }"
    )
    with Session(compile_model(model, CompileOptions(target=device().target)), device()) as session:
        a, b = session.run(None, {"x": np.zeros(64, np.float32)})
    assert np.mean(a == b) < 0.1
