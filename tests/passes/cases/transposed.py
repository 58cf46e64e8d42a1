"""Products that read what a Transpose would give them where it is."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Array, Table

RNG = np.random.default_rng(8)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


T = Table(
    c=normal(6), split=np.array([2, 7, 3, 4]), two=np.array([2]), six=np.array([6]), last=np.array([-1]),
)  # fmt: skip
TURNED, Y = "t = Transpose<perm=[1,0]>(x)", "float[a,b] y"
PRODUCTS = {"MatMul": "MatMul(t, z)", "Gemm": "Gemm<alpha=0.5>(t, z, c)",
            "com.microsoft:FusedMatMul": "com.microsoft.FusedMatMul<alpha=0.5>(t, z)"}  # fmt: skip

for name, node in PRODUCTS.items():
    pattern, given = f"fuse_transposes/{name}", "float[7,5] x, float[7,6] z"
    T.fires(pattern, f"{given} => {Y} {{ {TURNED} y = {node} }}", name, "float[d,e] t", f"Transpose {name}")
    free = "float[K,M] x, float[K,6] z"
    T.fires(pattern, f"{free} => {Y} {{ {TURNED} y = {node} }}", name)
    swapped = node.replace("t, z", "z, t")
    T.fires(pattern, f"float[6,5] x, float[7,5] z => {Y} {{ {TURNED} y = {swapped} }}", name)
    T.stays(
        pattern,
        "other operator",
        f"float[7,5] x, float[7,6] z => {Y} {{ t0 = Transpose<perm=[1,0]>(x) t = Exp(t0) y = {node} }}",
        f"Transpose Exp {name}",
    )
T.fires(
    "fuse_transposes/Gemm",
    f"float[7,5] x, float[7,6] z => {Y} {{ {TURNED} u = Transpose<perm=[1,0]>(z) y = Gemm<transB=1>(t, u, c) }}",
    "Gemm",
)
T.fires(
    "fuse_transposes/com.microsoft:FusedMatMul",
    "float[2,3,5] x, float[2,6,3] z => float[a,b,c] y "
    "{ t = Transpose<perm=[0,2,1]>(x) y = com.microsoft.FusedMatMul<transB=1>(t, z) }",
    "com.microsoft:FusedMatMul",
)
MATMUL = "fuse_transposes/MatMul"
T.fires(
    MATMUL,
    f"float16[7,5] x, float16[9,7] z => float16[a,b] y {{ {TURNED} u = Transpose<perm=[1,0]>(z) y = MatMul(t, u) }}",
    "MatMul",
    tolerance={"rtol": 5e-3, "atol": 1e-2},
)
T.fires(MATMUL, f"int32[7,5] x, int32[7,6] z => int32[a,b] y {{ {TURNED} y = MatMul(t, z) }}", "MatMul")
HEADS = "float[2,7,3,4] x, float[2,9,3,4] z => float[a,b,c,d] y"
BY_HEAD = "q = Transpose<perm=[0,2,1,3]>(x) k = Transpose<perm=[0,2,3,1]>(z) y = MatMul(q, k)"
T.fires(MATMUL, f"{HEADS} {{ {BY_HEAD} }}", "MatMul", "float[e,f,g,h] k", "Transpose MatMul")
SPLIT = f"s = Reshape(r, split) {BY_HEAD.replace('(x)', '(s)')}"
T.fires(MATMUL, f"{HEADS.replace('[2,7,3,4] x', '[2,7,12] r')} {{ {SPLIT} }}", "MatMul", "float[e,f,g,h] s", "MatMul")
T.fires(MATMUL, f"float[7,5] x => {Y} {{ {TURNED} y = MatMul(t, x) }}", "MatMul")
T.fires(MATMUL, f"float[5,5] x => {Y} {{ {TURNED} y = MatMul(t, t) }}", "MatMul")
CUT = f"s = Slice(r, two, six, last) {TURNED.replace('(x)', '(s)')} y = MatMul(t, z)"
T.fires(MATMUL, f"float[7,8] r, float[7,6] z => {Y} {{ {CUT} }}", "MatMul", "float[d,e] s", "Slice MatMul")
T.stays(
    MATMUL,
    "other operator",
    f"float[7,8] r, float[4,6] z => {Y} {{ s = Slice(r, two, six, last) y = MatMul(s, z) }}",
    "Slice MatMul",
)
T.stays(
    MATMUL,
    "wrong axis",
    "float[2,3,4] x, float[3,5] z => float[a,b,c] y { t = Transpose<perm=[2,0,1]>(x) y = MatMul(t, z) }",
    "Transpose MatMul",
)
T.stays(
    MATMUL, "other type", f"int64[7,5] x, int64[7,6] z => int64[a,b] y {{ {TURNED} y = MatMul(t, z) }}", "Transpose"
)
