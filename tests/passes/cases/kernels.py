"""What ends a heavy kernel, and elementwise nodes in one kernel."""

from __future__ import annotations

import re

import numpy as np

from tests.passes.cases.case import Array, Table

RNG = np.random.default_rng(6)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


NUMBERS = {
    "one": 1, "half": 0.5, "three": 3, "root": 2**0.5, "zero": 0, "six": 6, "cubic": 0.044715, "pi": (2 / np.pi) ** 0.5,
    "low": -3e38, "hidden": -np.inf, "eighth": 8**-0.5,
}  # fmt: skip
T = Table(
    wc=normal(4, 3, 3, 3), wt=normal(3, 4, 2, 2), w=normal(8, 8), b=normal(8), k=normal(4, 1, 1),
    wide=normal(2, 2, 3, 8),
    nw=RNG.integers(0, 255, (8, 1, 8)).astype(np.uint8), ns=np.abs(normal(8)) + 0.1, s=np.float32(0.05), z=np.uint8(3),
    cube=np.array([3, 4, 2]), by_head=np.array([0, 0, 3, 8]), flat=np.array([0, 0, 24]), no=np.array(0),
    step=np.array(1),
    rows=np.array([1]), deep=np.array([2]), final=np.array([3]), two=np.array([2]), eight=np.array([8]),
    last=np.array([-1]),
    heads=np.array([0, 4, -1, 8]), axes3=np.array([1, 2, 3]), axes2=np.array([0, 1, 2]),
    **{k: np.float32(v) for k, v in NUMBERS.items()}, split=np.array([2, 3, 8]),
    **{f"{k}_h": np.float16(v) for k, v in NUMBERS.items() if k != "low"},
)  # fmt: skip

HEAVY = {
    "Conv": ("float[2,3,5,6] x", "float[a,b,c,d] y", "m = Conv<pads=[1,1,1,1]>(x, wc)", "float[e,f,g,h] m"),
    "ConvTranspose": ("float[2,3,3,3] x", "float[a,b,c,d] y", "m = ConvTranspose(x, wt)", "float[e,f,g,h] m"),
    "MatMul": ("float[3,8] x", "float[a,b] y", "m = MatMul(x, w)", "float[e,f] m"),
    "Gemm": ("float[3,8] x", "float[a,b] y", "m = Gemm<alpha=0.5,beta=2.0,transB=1>(x, w, b)", "float[e,f] m"),
    "com.microsoft:FusedMatMul": ("float[3,8] x", "float[a,b] y", "m = com.microsoft.FusedMatMul<transB=1>(x, w)",
                                  "float[e,f] m"),
    "com.microsoft:MatMulNBits": ("float[3,16] x", "float[a,b] y",
                                  "m = com.microsoft.MatMulNBits<K=16, N=8, bits=4, block_size=16>(x, nw, ns)",
                                  "float[e,f] m"),
}  # fmt: skip
GELU = "p = Div(m, root) q = Erf(p) r = Add(q, one) t = Mul(m, r) y = Mul(t, half)"
TANH = ("c3 = Mul(m, m) c4 = Mul(c3, m) c5 = Mul(c4, cubic) c6 = Add(m, c5) c7 = Mul(c6, pi) c8 = Tanh(c7) "
        "c9 = Add(c8, one) t = Mul(m, c9) y = Mul(t, half)")  # fmt: skip
SILU = "p = Sigmoid(m) y = Mul(m, p)"
SWISH = "p = Add(m, three) q = Clip(p, zero, six) r = Mul(m, q) y = Div(r, six)"
MISH = "p = Softplus(m) q = Tanh(p) y = Mul(m, q)"
LOGS = "p = Exp(m) q = Add(p, one) r = Log(q) t = Tanh(r) y = Mul(m, t)"


def halves(text: str) -> str:
    """The same formulas with constants of halves."""
    return re.sub(r"\b(one|half|three|root|zero|six|cubic|pi)\b", r"\1_h", text)


SIZES = {"Conv": "2,4,5,6", "ConvTranspose": "2,4,4,4"}
for op, (given, out, node, between) in HEAVY.items():
    pattern = f"fuse_epilogues/{op}"
    T.fires(pattern, f"{given} => {out} {{ {node} y = Sigmoid(m) }}", "Sigmoid", between, f"{op} Sigmoid")
    T.fires(pattern, f"{given} => {out} {{ {node} {SILU} }}", "Mul", between, f"{op} Sigmoid Mul")
    residual = f"float[{SIZES.get(op, '3,8')}] r"
    T.fires(pattern, f"{given}, {residual} => {out} {{ {node} p = Add(r, m) y = Relu(p) }}", "Relu")
    T.stays(
        pattern,
        "other type",
        f"{given} => {out.replace('float', 'bool')} {{ {node} y = Greater(m, zero) }}",
        f"{op} Greater",
    )
    T.stays(pattern, "other operator", f"{given} => {out} {{ {node} y = Softmax(m) }}", f"{op} Softmax")
WINDOWS = {
    **{op: f"{op}<kernel_shape=[2,2]>(x)" for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: f"{op}(x)" for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")},
    **{f"Reduce{name}": f"Reduce{name}<keepdims=1>(x, deep)"
       for name in ("Sum", "L1", "SumSquare", "Prod", "Mean", "Max", "Min", "L2", "LogSum", "LogSumExp")},
}  # fmt: skip
for op, made in WINDOWS.items():
    given, m = "float[2,3,5,6] x", f"s = Exp(x) m = {made.replace('(x', '(s')}"
    T.fires(
        f"fuse_epilogues/{op}",
        f"{given} => float[a,b,c,d] y {{ {m} p = Sigmoid(m) y = Mul(p, half) }}",
        "Exp Mul",
        "float[e,f,g,h] m",
        f"Exp {op} Sigmoid Mul",
    )
    T.stays(
        f"fuse_epilogues/{op}",
        "other type",
        f"{given} => bool[a,b,c,d] y {{ {m} y = Greater(m, half) }}",
        f"Exp {op} Greater",
    )
for rest in (GELU, TANH, SWISH, MISH, LOGS):
    for op in ("Conv", "MatMul"):
        given, out, node, _ = HEAVY[op]
        left = rest.split("= ")[-1].split("(")[0]
        T.fires(f"fuse_epilogues/{op}", f"{given} => {out} {{ {node} {rest} }}", left)
T.fires(
    "fuse_epilogues/Gemm",
    "float[6,8] x, float[2,3,8] r => float[a,b,c] y { m = Gemm(x, w, b) t = Reshape(m, split) y = Add(t, r) }",
    "Add",
    "float[e,f,g] t",
    "Gemm Add",
)
T.stays(
    "fuse_epilogues/MatMul",
    "other shape",
    "float[3,8] x => float[a,b,c,d] y { m = MatMul(x, w) y = Add(m, wide) }",
    "MatMul Add",
)
T.fires(
    "fuse_epilogues/MatMul",
    "float[2,N,5] x, float[2,5,7] v, float[2,N,7] r => float[a,b,c] y { m = MatMul(x, v) y = Add(m, r) }",
    "Add",
)
T.fires(
    "fuse_epilogues/Conv",
    "float[2,3,5,6] x => float[a,b,c,d] y { m = Conv(x, wc) n = Relu(m) q = QuantizeLinear(n, s, z) "
    "e = DequantizeLinear(q, s, z) y = Mul(e, e) }",
    "Mul",
)

CHAIN = "float[N,7] x, float[7] r => float[a,b] y"
for rest in (GELU, TANH, SILU, SWISH, MISH, LOGS):
    last = rest.split("= ")[-1].split("(")[0]
    T.fires("fuse_elementwise", f"float[N,7] m => float[a,b] y {{ {rest} }}", last, odd=True)
    T.fires("fuse_elementwise", f"float16[N,7] m => float16[a,b] y {{ {halves(rest)} }}", last)
DIAMOND = "p = Greater(x, r) q = Exp(x) t = Neg(q) u = Mul(q, t) v = Add(u, r) y = Where(p, v, q)"
T.fires("fuse_elementwise", f"{CHAIN} {{ {DIAMOND} }}", "Where", "float[e,f] u", "Exp Mul Where", odd=True)
T.fires("fuse_elementwise", "int32[N,7] x => int32[a,b] y { p = Add(x, x) q = Mul(p, x) y = Neg(q) }", "Neg")
T.fires(
    "fuse_elementwise",
    "float[3,5] x => float[a,b] y { q = QuantizeLinear(x, s, z) t = DequantizeLinear(q, s, z) y = Abs(t) }",
    "Abs",
)
T.stays(
    "fuse_elementwise",
    "graph output",
    "float[3,5] x => float[a,b] y, uint8[c,d] q "
    "{ q = QuantizeLinear(x, s, z) t = DequantizeLinear(q, s, z) y = Abs(t) }",
    "QuantizeLinear Abs",
)
T.stays(
    "fuse_elementwise",
    "other shape",
    "float[7] x, float[3,7] r => float[a,b] y { p = Exp(x) y = Add(p, r) }",
    "Exp Add",
)
T.stays(
    "fuse_elementwise",
    "other type",
    "float[N,7] x => float[a,b] y { p = Cast<to=10>(x) y = Cast<to=1>(p) }",
    "Cast Cast",
    odd=True,
)
T.stays(
    "fuse_elementwise",
    "other type",
    "float[N,7] x => float[a,b] y { p = Cast<to=2>(x) q = Add(p, p) y = Cast<to=1>(q) }",
    "Cast Add Cast",
)
T.stays(
    "fuse_elementwise",
    "too large",
    "float[9] x0 => float[x75] y {" + " ".join(f"x{i + 1} = Neg(x{i})" for i in range(40)) + " y = Neg(x40) }",
    "Neg Neg",
)

LINE = "float[N,3,8] x, float[3,8] r => float[a,b,c] y"
for name in ("Sum", "L1", "SumSquare", "Prod", "Mean", "Max", "Min", "L2", "LogSum"):
    op, pattern = f"Reduce{name}", f"fuse_reductions/Reduce{name}"
    T.fires(
        pattern,
        f"{LINE} {{ p = Mul(x, r) m = Abs(p) y = {op}(m, last) }}",
        op,
        "float[e,f,g] m",
        f"Mul Abs {op}",
        odd=True,
    )
    T.stays(
        pattern, "other operator", f"{LINE} {{ p = Mul(x, r) m = Softmax(p) y = {op}(m, last) }}", f"Mul Softmax {op}"
    )
    T.stays(
        pattern,
        "other type",
        f"{LINE} {{ p = Cast<to=10>(x) y = {op}(p, last) }}".replace("=> float[", "=> float16["),
        f"Cast {op}",
        tolerance={"rtol": 1e-2, "atol": 1e-2},
    )
T.fires(
    "fuse_reductions/ReduceSum",
    "float[3,2000] x => float[a] y { p = Exp(x) y = ReduceSum<keepdims=0>(p, last) }",
    "ReduceSum",
)
T.fires(
    "fuse_reductions/ReduceSum",
    "float[N,3] x => int64[a] y { p = Greater(x, half) q = Cast<to=7>(p) y = ReduceSum<keepdims=0>(q, last) }",
    "ReduceSum",
)
T.fires(
    "fuse_reductions/ReduceMean",
    "float16[N,3] x => float16[a] y { p = Mul(x, x) y = ReduceMean<keepdims=0>(p, last) }",
    "ReduceMean",
)

T.fires(
    "fuse_epilogues/Conv",
    "float[2,3,5,6] x => float[a,b,c,d] y { m = Conv(x, wc) h = HardSigmoid(m) p = Mul(m, h) "
    "q = Div(p, k) y = LeakyRelu<alpha=0.1>(q) }",
    "LeakyRelu",
    odd=True,
)
T.fires(
    "fuse_epilogues/MatMul",
    "float[M,K] x, float[K,N] v, float[1] r => float[a,b] y "
    "{ m = MatMul(x, v) p = Add(m, r) q = Mul(p, m) y = Tanh(q) }",
    "Tanh",
)
