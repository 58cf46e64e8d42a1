"""Factors, summands, statistics and padding that move into weights and attributes; elementwise nodes that change places
with what only moves; weights that stay packed."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Array, Table

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def packed(*shape: int) -> Array:
    return RNG.integers(-100, 100, shape).astype(np.int8)


T = Table(
    wc=normal(6, 2, 3, 3), wt=normal(4, 3, 3, 3), b=normal(6), k=normal(6, 1, 1) + 3, g=normal(6) + 3,
    two=np.float32(2), half=np.float32(0.5), one=np.float32(1), image=normal(2, 1, 1, 1),
    five=normal(1, 1, 6, 1, 1), rows=normal(3, 1), scale=normal(6) + 2, bias=normal(6), mean=normal(6),
    var=np.abs(normal(6)) + 0.5, w=normal(5, 6), w3=normal(2, 5, 6), wh=normal(5, 6).astype(np.float16),
    gh=(normal(6) + 3).astype(np.float16), large=np.full(6, 6e4, np.float16), twos=np.full((5, 6), 2, np.float16),
    ch=normal(6, 4, 1, 1).astype(np.float16), row=normal(6), side=normal(3, 1), whole=np.array([3, 6]),
    around=np.array([0, 0, 1, 2, 0, 0, 0, 1]), deep=np.array([0, 1, 0, 0, 0, 0, 0, 0]),
    crop=np.array([0, 0, 1, -1, 0, 0, 0, 0]), lowest=np.float32(-np.inf), p3=normal(2, 3, 2, 2), p4=normal(2, 4, 2, 2),
    last=np.array([-1]), first=np.array([0]), cube=np.array([2, 3, 3]), si=np.abs(normal(96)) + 0.1,
    s1=np.float32(0.01), m8=packed(64, 96), t8=packed(96, 64), small8=packed(8, 8), e8=packed(4096, 64),
    odd8=packed(64, 98), i5=RNG.integers(-5, 5, (5, 6)).astype(np.int32), i6=np.arange(6, dtype=np.int32),
)  # fmt: skip
CONV, TRANSPOSED = "m = Conv<group=2>(x, wc, b)", "m = ConvTranspose<group=2,strides=[2,2]>(x, wt, b)"
IMAGE, OUT = "float[2,4,5,7] x", "float[a,c,d,e] y"
MATRIX, PLANE = "float[3,5] x", "float[a,c] y"
HEAVY = {
    "Conv": (CONV, IMAGE, OUT, "k", "float[f,h,i,j] m"), "ConvTranspose": (TRANSPOSED, IMAGE, OUT, "k",
    "float[f,h,i,j] m"),
    "Gemm": ("m = Gemm(x, w, b)", MATRIX, PLANE, "g", "float[f,h] m"),
    "MatMul": ("m = MatMul(x, w)", MATRIX, PLANE, "g", "float[f,h] m"),
}  # fmt: skip

for heavy, (node, given, out, by, between) in HEAVY.items():
    form = {"reference": heavy != "ConvTranspose"}
    for op in ("Mul", "Div", "Add", "Sub") if heavy != "MatMul" else ("Mul", "Div"):
        pattern = f"fold_into_weights/{heavy}+{op}"
        T.fires(pattern, f"{given} => {out} {{ {node} y = {op}(m, {by}) }}", heavy, between, f"{heavy} {op}", **form)
        wrong = "image" if out == OUT else "rows"
        T.stays(pattern, "wrong axis", f"{given} => {out} {{ {node} y = {op}(m, {wrong}) }}", f"{heavy} {op}", **form)
        if op in ("Sub", "Div"):
            T.stays(pattern, "other order", f"{given} => {out} {{ {node} y = {op}({by}, m) }}", f"{heavy} {op}", **form)
T.fires("fold_into_weights/Conv+Mul", f"{IMAGE} => {OUT} {{ {CONV} y = Mul(two, m) }}", "Conv")
T.fires("fold_into_weights/Conv+Add", f"{IMAGE} => {OUT} {{ m = Conv<group=2>(x, wc) y = Add(k, m) }}", "Conv")
T.fires("fold_into_weights/Gemm+Mul", f"{MATRIX} => {PLANE} {{ m = Gemm<transB=1>(x, v, b) y = Mul(m, g) }}", "Gemm")
T.pool["v"] = T.pool["w"].T.copy()
T.fires("fold_into_weights/MatMul+Mul", "float[2,N,5] x => float[a,c,d] y { m = MatMul(x, w) y = Mul(m, g) }", "MatMul")
T.fires("fold_into_weights/Conv+Mul", "float16[1,4,3,3] x => float16[a,c,d,e] y { m = Conv(x, ch) y = Mul(m, kh) }",
        "Conv")  # fmt: skip
T.pool["kh"] = T.pool["gh"].reshape(6, 1, 1)
T.stays("fold_into_weights/Conv+Mul", "wrong axis", f"{IMAGE} => {OUT} {{ {CONV} y = Mul(m, image) }}", "Conv Mul")
T.stays(
    "fold_into_weights/Conv+Mul",
    "other shape",
    f"{IMAGE} => float[z,a,c,d,e] y {{ {CONV} y = Mul(m, five) }}",
    "Conv Mul",
)
T.stays("fold_into_weights/Conv+Mul", "other operator", f"{IMAGE} => {OUT} {{ {CONV} y = Pow(m, two) }}", "Conv Pow")
T.stays(
    "fold_into_weights/Conv+Mul",
    "not constant",
    f"{IMAGE}, float[6,2,3,3] wf => {OUT} {{ m = Conv<group=2>(x, wf) y = Mul(m, k) }}",
    "Conv Mul",
)
T.stays(
    "fold_into_weights/Gemm+Mul",
    "wrong constant",
    f"{MATRIX} => {PLANE} {{ m = Gemm<alpha=2.0>(x, w, b) y = Mul(m, g) }}",
    "Gemm Mul",
)
T.stays(
    "fold_into_weights/Gemm+Mul",
    "other shape",
    f"{MATRIX} => {PLANE} {{ m = Gemm(x, w, rows) y = Mul(m, g) }}",
    "Gemm Mul",
)
T.stays(
    "fold_into_weights/MatMul+Mul",
    "other shape",
    "float[2,3,5] x => float[a,c,d] y { m = MatMul(x, w3) y = Mul(m, g) }",
    "MatMul Mul",
)
T.stays(
    "fold_into_weights/MatMul+Mul",
    "too large",
    "float16[3,5] x => float16[a,c] y { h = Mul(x, tiny) m = MatMul(h, twos) y = Mul(m, large) }",
    "Mul MatMul Mul",
    tolerance={"rtol": 5e-2},
)
T.pool["tiny"] = np.float16(1e-3)
T.stays(
    "fold_into_weights/Conv+Mul",
    "second consumer",
    "float[2,4,5,7] x => float[a,c,d,e] y, float[f,h,i,j] z "
    "{ m = Conv<group=2>(x, wc) n = Conv<group=2,strides=[2,2]>(x, wc) y = Pow(m, two) z = Neg(n) }",
    "Conv Conv Pow Neg",
)

T.fires(
    "add_to_products",
    f"{MATRIX} => {PLANE} {{ m = MatMul(x, w) y = Add(row, m) }}",
    "Gemm",
    "float[f,h] m",
    "MatMul Add",
)
T.fires(
    "add_to_products",
    "float[N,K] x, float[K,M] z, float[M] c => float[a,b] y { m = MatMul(x, z) y = Add(m, c) }",
    "Gemm",
)
T.fires("add_to_products", f"{MATRIX} => {PLANE} {{ m = MatMul(x, w) n = Neg(row) a = Exp(n) y = Add(m, a) }}", "Gemm")
T.fires(
    "add_to_products",
    "float16[3,5] x => float16[a,c] y { m = MatMul(x, wh) y = Add(m, gh) }",
    "Gemm",
    tolerance={"rtol": 5e-3, "atol": 1e-2},
)
T.stays("add_to_products", "wrong axis", f"{MATRIX} => {PLANE} {{ m = MatMul(x, w) y = Add(m, side) }}", "MatMul Add")
T.stays(
    "add_to_products",
    "other shape",
    "float[2,3,5] x => float[a,c,d] y { m = MatMul(x, w) y = Add(m, row) }",
    "MatMul Add",
)
T.stays(
    "add_to_products", "other type", "int32[3,5] x => int32[a,c] y { m = MatMul(x, i5) y = Add(m, i6) }", "MatMul Add"
)
T.stays(
    "add_to_products", "other operator", f"{MATRIX} => {PLANE} {{ m = MatMul(x, w) y = Sub(m, row) }}", "MatMul Sub"
)

NORM = "y = BatchNormalization<epsilon=0.01>(m, scale, bias, mean, var)"
for node, given, out, between in (HEAVY[n][:3] + HEAVY[n][4:] for n in HEAVY):
    op = node.split()[2].split("<")[0].split("(")[0]
    T.fires(
        "split_batch_norms",
        f"{given} => {out} {{ {node} {NORM} }}",
        "Gemm" if op == "MatMul" else op,
        between,
        f"{op} Mul Add",
        reference=op != "ConvTranspose",
    )
T.fires("split_batch_norms", f"float[2,6,N] m => float[a,c,d] y {{ {NORM} }}", "Mul Add", odd=True)
T.pool |= {f"{k}h": T.pool[k].astype(np.float16) for k in ("scale", "bias", "mean", "var")}
HALF = "y = BatchNormalization(m, scaleh, biash, meanh, varh)"
T.fires(
    "split_batch_norms",
    f"float16[1,4,3,3] x => float16[a,c,d,e] y {{ m = Conv(x, ch) {HALF} }}",
    "Conv",
    tolerance={"rtol": 1e-2, "atol": 2e-2},
)
T.stays("split_batch_norms", "other type", f"float16[2,6,3] m => float16[a,c,d] y {{ {HALF} }}", "BatchNormalization")
T.stays(
    "split_batch_norms",
    "not constant",
    f"float[2,6,3] m, float[6] mean => float[a,c,d] y {{ {NORM} }}",
    "BatchNormalization",
)
T.stays(
    "split_batch_norms",
    "graph output",
    "float[2,6,3] x => float[a,c,d] y, float[6] p, float[6] q "
    "{ y, p, q = BatchNormalization<training_mode=1>(x, scale, bias, mean, var) }",
    "BatchNormalization",
)

for op in ("Mul", "Add"):
    pattern = f"join_constants/{op}"
    T.fires(
        pattern, f"float[3,6] x => {PLANE} {{ m = {op}(x, side) y = {op}(two, m) }}", op, "float[f,h] m", f"{op} {op}"
    )
    T.stays(pattern, "other shape", f"float[3,6] x => {PLANE} {{ m = {op}(x, row) y = {op}(m, side) }}", f"{op} {op}")
    T.stays(pattern, "other operator", f"float[3,6] x => {PLANE} {{ m = Div(x, row) y = {op}(m, side) }}", f"Div {op}")
    T.stays(pattern, "other type", f"int32[3,6] x => int32[a,c] y {{ m = {op}(x, i6) y = {op}(m, i6) }}", f"{op} {op}")

PAD = "float[1,3,5,6] x => float[a,c,d,e] y { m = Pad(x, around) "
T.fires("fold_padding/Conv", f"{PAD} y = Conv<pads=[1,1,1,1]>(m, p3) }}", "Conv")
T.fires("fold_padding/AveragePool", f"{PAD} y = AveragePool<kernel_shape=[2,3]>(m) }}", "AveragePool")
T.fires(
    "fold_padding/MaxPool",
    f"{PAD.replace('around', 'around, lowest')} y = MaxPool<kernel_shape=[3,4]>(m) }}",
    "MaxPool",
    reference=False,
)
for op, node in (("Conv", "Conv(m, p3)"), ("AveragePool", "AveragePool<kernel_shape=[3,3]>(m)"),
                 ("MaxPool", "MaxPool<kernel_shape=[3,3]>(m)")):  # fmt: skip
    T.stays(
        f"fold_padding/{op}", "wrong constant", f"{PAD.replace('around', 'around, one')} y = {node} }}", f"Pad {op}"
    )
    T.stays(
        f"fold_padding/{op}",
        "wrong axis",
        f"{PAD.replace('around', 'deep')} y = {node.replace('p3', 'p4')} }}",
        f"Pad {op}",
    )
    edge = PAD.replace("Pad(", 'Pad<mode="edge">(')
    T.stays(f"fold_padding/{op}", "other operator", f"{edge} y = {node} }}", f"Pad {op}")
    T.stays(
        f"fold_padding/{op}",
        "wrong constant",
        f"{PAD.replace('around', 'crop')} y = {node} }}",
        f"Pad {op}",
        reference=False,
    )
T.stays("fold_padding/MaxPool", "wrong constant", f"{PAD} y = MaxPool<kernel_shape=[3,3]>(m) }}", "Pad MaxPool")
T.stays("fold_padding/AveragePool", "too large", f"{PAD} y = AveragePool<kernel_shape=[2,2]>(m) }}", "Pad AveragePool")
T.stays(
    "fold_padding/AveragePool",
    "wrong constant",
    f"{PAD} y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(m) }}",
    "Pad AveragePool",
)
T.stays("fold_padding/Conv", "other operator", f'{PAD} y = Conv<auto_pad="SAME_UPPER">(m, p3) }}', "Pad Conv")

T.pool |= {"milli": np.full((2, 2, 1, 1), 1e-3, np.float16), "heavy": np.full((2, 2, 1, 1), 2, np.float16),
           "vast": np.float16(60000)}  # fmt: skip
SMALL = "float16[1,2,3,3] x => float16[a,c,d,e] y { m = Conv(x, milli) y = Mul(m, vast) }"
T.fires("fold_into_weights/Conv+Mul", SMALL, "Conv", tolerance={"rtol": 3e-3})
T.stays(
    "fold_into_weights/Conv+Mul",
    "too large",
    SMALL.replace("(x, milli)", "(h, heavy)").replace("{", "{ h = Mul(x, tiny)"),
    "Mul Conv Mul",
    tolerance={"rtol": 1e-2, "atol": 0.5},
)
T.fires(
    "fold_into_weights/Conv+Mul",
    f"{IMAGE} => {OUT}, float[f,h,i,j] z {{ m = Conv<group=2>(x, wc) "
    "n = Conv<group=2,strides=[2,2]>(x, wc) y = Mul(m, k) z = Neg(n) }",
    "Conv Conv Neg",
)
T.fires("fold_into_weights/Conv+Add", f"{IMAGE} => {OUT} {{ {CONV} n = Mul(m, k) y = Add(n, k) }}", "Conv")
