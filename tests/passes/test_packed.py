"""Weights that a model stores in 8 bits and that stay so: where, where not, and that they are the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.kernels.harness import oracle, run_native
from tests.passes.harness import Array, basic_ops, check, compiled, dispatches, feeds_of, parse
from tests.tolerance import close
from webrt.plan import Plan

RNG = np.random.default_rng(11)
PRODUCT = "com.microsoft:MatMulNBits"
LOOKUP = "com.microsoft:GatherBlockQuantized"
K, N = 96, 64


def numbers(*shape: int, dtype: str = "int8") -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def scales(*shape: int) -> Array:
    return (RNG.uniform(0.5, 1.5, shape) / 512).astype(np.float32)


HELD: dict[str, Array] = {
    "w": numbers(K, N), "t": numbers(N, K), "u": numbers(K, N, dtype="uint8"), "odd": numbers(K, 66),
    "table": numbers(2737, K), "st": scales(2737), "ragged": numbers(72, N),  "stack": numbers(2, K, N),
    "v": numbers(K, N), "o": numbers(K, N), "heads": np.array([0, 0, 4, 16]), "at": np.array([5]),
    "s": np.float32(0.004), "sn": scales(N), "sk": scales(K), "s66": scales(66), "blocks": scales(3, N),
    "sixes": scales(16, N), "row": scales(1, N), "column": scales(N, 1),
    "zero": np.uint8(117), "zn": numbers(N),
    "zb": numbers(3, N, dtype="uint8"), "c": scales(N)
}  # fmt: skip


def model(body: str, inputs: str = f"float[2,M,{K}] x", outputs: str = f"float[2,M,{N}] y") -> onnx.ModelProto:
    """The constants are those of HELD that the text names."""
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    held = {k: a for k, a in HELD.items() if k in words}
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {body} }}", held, 21)


def kept(made: onnx.ModelProto) -> list[str]:
    return [op for op in basic_ops(made) if op in (PRODUCT, LOOKUP)]


def constant_bytes(plan: Plan) -> int:
    return sum(c.nbytes for c in plan.constants)


def parts(plan: Plan) -> tuple[object, ...]:
    """What a run does, and with which bytes."""
    held = [bytes(plan.constant_bytes(k)) for k in range(len(plan.constants))]
    return plan.kernels, plan.steps, plan.slots, [c.shape for c in plan.constants], held


FIRES = {
    "a scale": "d = DequantizeLinear(w, s) y = MatMul(x, d)",
    "a scale and a zero point": "d = DequantizeLinear(u, s, zero) y = MatMul(x, d)",
    "for each column": "d = DequantizeLinear<axis=-1>(w, sn, zn) y = MatMul(x, d)",
    "for each block": "d = DequantizeLinear<axis=0, block_size=32>(u, blocks, zb) y = MatMul(x, d)",
    "transposed": "d = DequantizeLinear<axis=0>(t, sn) e = Transpose<perm=[1,0]>(d) y = MatMul(x, e)",
    "cast and scaled": "f = Cast<to=1>(w) d = Mul(f, row) y = MatMul(x, d)",
    "scaled first": "f = Cast<to=1>(t) e = Mul(column, f) d = Transpose(e) y = MatMul(x, d)",
    "with what follows": "d = DequantizeLinear(w, sn) m = MatMul(x, d) b = Add(m, c) y = Relu(b)",
}


@pytest.mark.parametrize("body", FIRES.values(), ids=list(FIRES))
def test_a_product_by_packed_weights(body: str) -> None:
    made = model(body)
    assert kept(made) == [PRODUCT]
    plan = check(made)
    without = compiled(made, disabled={"keep_packed"})
    assert dispatches(plan) == dispatches(without) == 1
    assert constant_bytes(plan) < 0.5 * constant_bytes(without)


def test_by_gemm_with_a_bias() -> None:
    body = "d = DequantizeLinear<axis=0>(t, sn) y = Gemm<transB=1>(x, d, c)"
    made = model(body, f"float[M,{K}] x", f"float[M,{N}] y")
    assert kept(made) == [PRODUCT]
    assert dispatches(check(made)) == 1


def test_many_rows() -> None:
    """The tiles of most rows."""
    made = model(FIRES["for each column"], f"float[1,37,{K}] x", f"float[1,37,{N}] y")
    assert kept(made) == [PRODUCT]
    check(made)


STAYS = {
    "a scale for each row of k": "d = DequantizeLinear<axis=0>(w, sk) y = MatMul(x, d)",
    "blocks of six": "d = DequantizeLinear<axis=0, block_size=6>(w, sixes) y = MatMul(x, d)",
    "two products": "d = DequantizeLinear(w, sn) a = MatMul(x, d) n = Neg(x) b = MatMul(n, d) y = Mul(a, b)",
    "two products of the numbers": """d = DequantizeLinear(w, sn) a = MatMul(x, d) n = Neg(x)
      e = DequantizeLinear(w, s) b = MatMul(n, e) y = Mul(a, b)""",
    "another reader": "d = DequantizeLinear(w, sn) m = MatMul(x, d) r = ReduceSum(d) y = Add(m, r)",
    "a reader in the middle": "f = Cast<to=1>(w) d = Mul(f, row) m = MatMul(x, d) r = ReduceSum(f) y = Add(m, r)",
    "a stack": "d = DequantizeLinear(stack, s) y = MatMul(x, d)",
    "a transposition that is none": "d = DequantizeLinear(w, s) e = Transpose<perm=[0,1]>(d) y = MatMul(x, e)",
    "rows that are looked up, too": """d = DequantizeLinear(w, s) m = MatMul(x, d) r = Gather(d, at) y = Add(m, r)""",
}


@pytest.mark.parametrize("body", STAYS.values(), ids=list(STAYS))
def test_weights_that_are_folded(body: str) -> None:
    made = model(body)
    assert kept(made) == []
    check(made)


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        ("d = DequantizeLinear(odd, s66) y = MatMul(x, d)", "float[M,96] x", "float[M,66] y"),
        ("d = DequantizeLinear(ragged, sn) y = MatMul(x, d)", "float[M,72] x", "float[M,64] y"),
        ("d = DequantizeLinear(w, sn) y = MatMul(x, d)", "float[M,96] x", "float[M,64] y, float[96,64] d"),
        ("d = DequantizeLinear(w, sn) y = MatMul(x, d)", "float[96] x", "float[64] y"),
        ("d = DequantizeLinear(w, sn) y = Gemm<transA=1>(x, d)", "float[96,M] x", "float[M,64] y"),
        ("d = DequantizeLinear(w, sn) y = Gemm<alpha=0.5>(x, d)", "float[M,96] x", "float[M,64] y"),
        ("d = DequantizeLinear(w, sn) y = MatMul(d, x)", "float[64,M] x", "float[96,M] y"),
    ],
    ids=["odd columns", "a ragged block", "an output", "a vector", "x transposed", "a factor", "the left operand"],
)
def test_products_that_stay(body: str, inputs: str, outputs: str) -> None:
    made = model(body, inputs, outputs)
    assert kept(made) == []
    check(made)


def test_only_where_a_device_may_run_it() -> None:
    made = model(FIRES["a scale"])
    assert [p.op for p in compiled(made, providers=("cpu",)).placement] == ["MatMul"]
    made.graph.node[-1].name = "product"
    assert [p.op for p in compiled(made, places={"product": "cpu"}).placement] == ["MatMul"]


LOOKUPS = "d = DequantizeLinear<axis=0>(table, st) g = Gather(d, i) y = Mul(g, s)"
IDS = np.array([[3, 2736, -1], [0, -2737, 3]])


def test_rows_of_a_table() -> None:
    made = model(LOOKUPS, "int64[B,S] i", f"float[B,S,{K}] y")
    assert kept(made) == [LOOKUP]
    (got,), plan = run_native(made, {"i": IDS})
    np.testing.assert_array_equal(got, oracle(made, {"i": IDS})[0])
    assert dispatches(plan) == 1
    assert constant_bytes(plan) < 0.5 * constant_bytes(compiled(made, disabled={"keep_packed"}))
    along = model(LOOKUPS.replace("Gather(", "Gather<axis=1>("), "int64[B] i", "float[2737,B] y")
    assert kept(along) == []
    small = model(LOOKUPS.replace("table, st", "t, sn"), "int64[B,S] i", f"float[B,S,{K}] y")
    assert kept(small) == []


HEADS = """
  dq = DequantizeLinear(w, sn) q = MatMul(x, dq) dk = DequantizeLinear(v, sn) k = MatMul(x, dk)
  do = DequantizeLinear(o, sn) o0 = MatMul(x, do) o1 = Add(o0, c)
  q4 = Reshape(q, heads) qh = Transpose<perm=[0,2,1,3]>(q4) k4 = Reshape(k, heads) kh = Transpose<perm=[0,2,3,1]>(k4)
  o4 = Reshape(o1, heads) oh = Transpose<perm=[0,2,1,3]>(o4)
  z0 = MatMul(qh, kh) z = Mul(z0, s) p = Softmax<axis=-1>(z) r = MatMul(p, oh) y = Transpose<perm=[0,2,1,3]>(r)
"""


def test_projections_of_an_attention_are_one_product() -> None:
    made = model(HEADS, outputs="float[2,M,4,16] y")
    assert kept(made) == [PRODUCT] * 3
    plan = check(made)
    assert dispatches(plan) == dispatches(compiled(made, disabled={"keep_packed"}))
    assert dispatches(plan) < dispatches(compiled(made, disabled={"join_projections"}))


@pytest.mark.parametrize("name", ["for each block", "transposed", "cast and scaled", "a scale and a zero point"])
def test_optimised_model(name: str, tmp_path: Path) -> None:
    """Others run it, and it is reloaded to the same plan at the lowest level."""
    made, path = model(FIRES[name]), tmp_path / "small.onnx"
    plan = compiled(made, optimized_path=path)
    feeds = feeds_of(made)
    small = onnx.load(path)
    assert len(path.read_bytes()) < 0.5 * 4 * K * N
    close(oracle(small, feeds)[0], oracle(made, feeds)[0], what="onnxruntime", rtol=1e-4, atol=1e-5)
    assert parts(compiled(small, level="disabled")) == parts(plan)


def test_optimised_look_up(tmp_path: Path) -> None:
    made, path = model(LOOKUPS, "int64[B,S] i", f"float[B,S,{K}] y"), tmp_path / "small.onnx"
    plan = compiled(made, optimized_path=path)
    np.testing.assert_array_equal(oracle(onnx.load(path), {"i": IDS})[0], oracle(made, {"i": IDS})[0])
    assert parts(compiled(onnx.load(path), level="disabled")) == parts(plan)
