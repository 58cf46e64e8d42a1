"""Functions, branches, loops; elementwise nodes that go before moves; weights that stay packed; projections."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Array, Table

RNG = np.random.default_rng(4)


def codes(*shape: int) -> Array:
    return RNG.integers(-100, 100, shape).astype(np.int8)


def normal(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


T = Table(
    true=np.array(True), three=np.array(3), zero=np.float32(0), c=np.float32(0.25), w=normal(5, 6), last=np.array([-1]),
    first=np.array([0]), cube=np.array([4, 3, 2]), row=normal(6), ms=normal(96) + 2, m8=codes(64, 96), t8=codes(96, 64),
    small8=codes(8, 8), e8=codes(4096, 64), odd8=codes(64, 98), s1=np.float32(0.01), es=normal(64) + 2,
    seven=codes(7, 8), kilo=np.array(0), by_head=np.array([0, 0, 3, 8]), flat=np.array([0, 0, 24]),
    wq=normal(16, 24), wk=normal(16, 24), wv=normal(16, 24), bq=normal(24), bv=normal(24), wide=normal(2, 16, 24),
    cube5=np.array([5, 2, 2]), twelve=np.array([12, 2]), pair=normal(2), rows=np.array([-1, 16]),
    nq=RNG.integers(0, 255, (16, 1, 8)).astype(np.uint8), nk=RNG.integers(0, 255, (8, 1, 8)).astype(np.uint8),
    nv=RNG.integers(0, 255, (8, 1, 8)).astype(np.uint8), sq=np.abs(normal(16)) + 0.1, sk=np.abs(normal(8)) + 0.1,
    ends=np.array([4], np.int32), total=np.array(5, np.int32),
)  # fmt: skip
X = "float[2,6] x => float[a,b] y"

T.fires(
    "inline_functions", "float[2,6] x, float[2,6] z => float[a,b] y { y = com.microsoft.BiasAdd(x, row, z) }", "Add Add"
)
T.stays("inline_functions", "other operator", f"{X} {{ y = Gelu(x) }}", "Gelu")
BRANCHES = "then_branch = g1 () => (float[2,6] p) { p = Neg(e) }, else_branch = g2 () => (float[2,6] q) { q = Exp(e) }"
T.fires("inline_known_branches", f"{X} {{ e = Abs(x) y = If (true) <{BRANCHES}> }}", "Abs Neg")
T.stays(
    "inline_known_branches",
    "not constant",
    f"{X} {{ e = Abs(x) m = ReduceMax<keepdims=0>(x) s = Less(m, zero) y = If (s) <{BRANCHES}> }}",
    "Abs ReduceMax Less If Neg Exp",
)
TURN = "body = g (int64 i, bool go, float[2,6] v) => (bool on, float[2,6] r) { on = Identity(go) r = Mul(v, x) }"
T.fires("unroll_loops", f"{X} {{ y = Loop (three, true, x) <{TURN}> }}", "Mul Mul Mul")
T.stays(
    "unroll_loops",
    "not constant",
    f"float[2,6] x, int64 n => float[a,b] y {{ y = Loop (n, true, x) <{TURN}> }}",
    "Loop Mul",
)
LINE = "body = g (float[2] s, float[3,2] v) => (float[2] r, float[3,2] o) { r = Identity(s) o = Neg(v) }"
AXES = "num_scan_inputs = 1, scan_input_axes = [{}], scan_output_axes = [{}]"
SCAN = "float[N,3,2] x, float[2] s => float[2] r, float[a,b,c] y { r, y = Scan "
T.fires(
    "straighten_scans",
    f"{SCAN.replace('N,3', '3,N')} <{AXES.format(1, 1)}, {LINE}> (s, x) }}",
    "Transpose Scan Transpose Identity Neg",
)
T.stays("straighten_scans", "wrong axis", f"{SCAN} <{AXES.format(0, 0)}, {LINE}> (s, x) }}", "Scan Identity Neg")

MOVED = {
    "Transpose": ("t = Transpose(m)", "float[f,g] t", "float[a,b] y"),
    "Reshape": ("t = Reshape(m, cube)", "float[f,g,h] t", "float[a,b,d] y"),
    "Unsqueeze": ("t = Unsqueeze(m, last)", "float[f,g,h] t", "float[a,b,d] y"),
    "Flatten": ("t = Flatten<axis=0>(m)", "float[f,g] t", "float[a,b] y"),
    "Squeeze": ("t = Squeeze(m, first)", "float[f,g] t", "float[a,b] y"),
}  # fmt: skip
for op, (move, between, out) in MOVED.items():
    given, pattern = f"float[{'1,' if op == 'Squeeze' else ''}4,5] x => {out}", f"hoist_elementwise/{op}"
    T.fires(pattern, f"{given} {{ m = MatMul(x, w) {move} y = Mul(t, c) }}", f"MatMul {op}")
    T.fires(
        pattern, f"{given} {{ m = MatMul(x, w) {move} y = Sub(c, t) }}", f"MatMul Sub {op}", between, f"MatMul {op} Sub"
    )
    T.stays(
        pattern,
        "other operator",
        f"{given} {{ m = Softmax(x) {move.replace('cube', 'cube5')} y = Relu(t) }}",
        f"Softmax {op} Relu",
    )
for by in (
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "HardSigmoid",
    "HardSwish",
    "Tanh",
    "Gelu",
    "Elu",
    "Softplus",
    "Mish",
    "Neg",
    "Abs",
):
    T.fires(
        "hoist_elementwise/Transpose",
        f"float[4,5] x => float[a,b] y {{ m = MatMul(x, w) t = Transpose(m) y = {by}(t) }}",
        f"MatMul {by} Transpose",
        opset=22,
    )
ROW = "float[4,5] x => float[a,b] y { m = MatMul(x, w) t = Reshape(m, twelve) y = Mul(t, pair) }"
T.stays("hoist_elementwise/Reshape", "other shape", ROW, "MatMul Reshape Mul")
T.stays(
    "hoist_elementwise/Transpose",
    "other type",
    "float[4,5] x => bool[a,b] y { m = MatMul(x, w) t = Transpose(m) y = Greater(t, c) }",
    "MatMul Transpose Greater",
)

COLUMNS = "d = DequantizeLinear<axis=1>(m8, ms)"
PACKED = "com.microsoft:MatMulNBits"
X64, Y64 = "float[3,64] x", "float[a,b] y"
READ = {
    "MatMul": (X64, f"{COLUMNS} y = MatMul(x, d)", PACKED),
    "Gemm": (X64, "d = DequantizeLinear<axis=0>(t8, ms) y = Gemm<transB=1>(x, d)", PACKED),
    "Gather": ("int64[3] i", "d = DequantizeLinear(e8, s1) y = Gather(d, i)", "com.microsoft:GatherBlockQuantized"),
}
for op, (given, body, left) in READ.items():
    T.fires(f"keep_packed/{op}", f"{given} => {Y64} {{ {body} }}", left)
    T.stays(f"keep_packed/{op}", "graph output", f"{given} => {Y64}, float[f,g] d {{ {body} }}", op)
    T.stays(f"keep_packed/{op}", "second consumer", f"{given} => {Y64}, float[f,g] z {{ {body} z = Neg(d) }}", op)
T.fires("keep_packed/MatMul", f"{X64} => {Y64} {{ i = Cast<to=1>(m8) d = Mul(i, s1) y = MatMul(x, d) }}", PACKED)
T.stays(
    "keep_packed/MatMul",
    "too large",
    f"float[3,8] x => {Y64} {{ d = DequantizeLinear(small8, s1) y = MatMul(x, d) }}",
    "MatMul",
)
T.stays(
    "keep_packed/MatMul",
    "other shape",
    f"{X64} => {Y64} {{ d = DequantizeLinear(odd8, s1) y = MatMul(x, d) }}",
    "MatMul",
)
T.stays("keep_packed/Gemm", "wrong constant", f"{X64} => {Y64} {{ {COLUMNS} y = Gemm<alpha=2.0>(x, d) }}", "Gemm")
T.stays(
    "keep_packed/Gather",
    "wrong axis",
    f"int64[3] i => {Y64} {{ d = DequantizeLinear(e8, s1) y = Gather<axis=1>(d, i) }}",
    "Gather",
)

HEADS = """q4 = Reshape(q, by_head) q5 = Transpose<perm=[0,2,1,3]>(q4) qh = Mul(q5, c)
  k4 = Reshape(k, by_head) kh = Transpose<perm=[0,2,3,1]>(k4) v4 = Reshape(v, by_head)
  vh = Transpose<perm=[0,2,1,3]>(v4)
  s = MatMul(qh, kh) p = Softmax<axis=-1>(s) r = MatMul(p, vh) rt = Transpose<perm=[0,2,1,3]>(r)
  y = Reshape(rt, flat)"""
THREE = "q0 = MatMul(x, wq) q = Add(q0, bq) k = MatMul(x, wk) v0 = MatMul(x, wv) v = Add(bv, v0)"
GIVEN, OUT = "float[2,S,16] x", "float[2,S,24] y"


def project(why: str, left: str, body: str = f"{THREE} {HEADS}", given: str = GIVEN, out: str = OUT) -> None:
    if why == "fires":
        T.fires("join_projections", f"{given} => {out} {{ {body} }}", left)
    else:
        T.stays("join_projections", why, f"{given} => {out} {{ {body} }}", left)


project("fires", "MatMul Add Attention")
project(
    "second consumer",
    "MatMul Add MatMul Add Attention Neg",
    f"{THREE} {HEADS} z = Neg(v)",
    out=f"{OUT}, float[a,b,d] z",
)
project("graph output", "MatMul Add MatMul Add Attention", out=f"{OUT}, float[a,b,d] v0")
project("not constant", "MatMul Add MatMul Add Attention", given=f"{GIVEN}, float[16,24] wv")
project("other shape", "MatMul Add MatMul Attention", f"{THREE} {HEADS}".replace("wk", "wide"))
project("other operator", "MatMul Add MatMul MatMul Add Sum", f"{THREE} y = Sum(q, k, v)")

BITS = "com.microsoft.MatMulNBits<K=16, N={}, bits=4, block_size=16>"
PARTS = f"q = {BITS.format(16)}(x, nq, sq) k = {BITS.format(8)}(x, nk, sk) v = {BITS.format(8)}(x, nv, sk)"
GROUPED = "com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=1>(q, k, v, pk, pv, ends, total)"
PAST = "float[1,3,16] x, float[1,1,2,8] pk, float[1,1,2,8] pv"
MADE, CACHE = "float[1,3,16] y", "float[a,b,d,e] ck, float[f,g,h,i] cv"


def pack(why: str, left: str, parts: str = PARTS, more: str = "", out: str = "", given: str = PAST) -> None:
    graph = f"{given} => {MADE}, {CACHE}{out} {{ {parts} y, ck, cv = {GROUPED} {more} }}"
    if why == "fires":
        T.fires("pack_projections", graph, left)
    else:
        T.stays("pack_projections", why, graph, left)


NBITS, GQA = "com.microsoft:MatMulNBits", "com.microsoft:GroupQueryAttention"
pack("fires", f"{NBITS} {GQA}")
pack("second consumer", f"{NBITS} {NBITS} {NBITS} {GQA} Neg", more="z = Neg(v)", out=", float[l,m,n] z")
pack("graph output", f"{NBITS} {NBITS} {NBITS} {GQA}", out=", float[l,m,n] k")
pack(
    "other operator",
    f"{NBITS} {NBITS} {NBITS} {GQA}",
    PARTS.replace("(x, nv", "(o, nv"),
    given=f"{PAST}, float[1,3,16] o",
)
pack("wrong constant", f"{NBITS} {NBITS} {NBITS} {GQA}", "accuracy_level=4, bits=4".join(PARTS.rsplit("bits=4", 1)))

ROWS = "float[4,5] x => float[a,b] y { m = MatMul(x, w) t = Transpose(m)"
T.fires("hoist_elementwise/Transpose", f"{ROWS} r = Relu(t) y = Div(r, c) }}", "MatMul Relu Div Transpose")
T.fires(
    "hoist_elementwise/Transpose",
    "float[4,5] x => float[a,b,d] y { m = MatMul(x, w) r = Reshape(m, cube) "
    "t = Transpose<perm=[1,0,2]>(r) y = Tanh(t) }",
    "MatMul Tanh Reshape Transpose",
)
T.stays(
    "hoist_elementwise/Transpose",
    "second consumer",
    f"{ROWS.replace('y {', 'y, float[d,e] z {')} y = Relu(t) z = Exp(m) }}",
    "MatMul Transpose Relu Exp",
)
T.stays(
    "hoist_elementwise/Transpose",
    "not constant",
    "float[4,5] x, float[6,4] r => float[a,b] y { m = MatMul(x, w) t = Transpose(m) y = Mul(t, r) }",
    "MatMul Transpose Mul",
)
