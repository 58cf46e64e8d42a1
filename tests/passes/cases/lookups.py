"""Products by rows of ones and zeros, and what is computed of looked up rows."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Table

RNG = np.random.default_rng(5)
TABLE = RNG.standard_normal((5, 6)).astype(np.float32)
TABLE[1, 2] = -0.0

T = Table(
    span=np.arange(-1, 4, dtype=np.int32).reshape(1, 1, 5), mixed=np.array([3, -1, 2, 0, 1], np.int32),
    long=np.arange(-1, 4), gap=np.array([0, 1, 2, 3, 5], np.int32),
    lowest=np.arange(-(2**31), 5 - 2**31).astype(np.int32), table=TABLE,
    turned=np.ascontiguousarray(TABLE.T), table_h=TABLE.astype(np.float16),
    wild=np.where(np.isclose(TABLE, TABLE.max()), np.float32(np.inf), TABLE),
    row=RNG.standard_normal(6).astype(np.float32),
    ones=np.ones((1, 1, 6), np.float32),
    side=RNG.standard_normal((3, 4, 6)).astype(np.float32), five=np.array(5),
    bits=np.array([0, 1], np.float32),
    others=np.array([0, 2], np.float32), half=np.float32(0.5),
)  # fmt: skip
IDS, OUT = "int32[3,4,1] x", "float[a,b,c] y"
ONES = "e = Equal(x, span) h = Cast<to=1>(e)"
SHIFTED = "Clip Sub Squeeze Gather"
WRAPPED = "Less Add Where Clip Gather"
PLAIN = "Equal Cast MatMul"
HOT = "look_up_one_hots"

T.fires(f"{HOT}/MatMul", f"{IDS} => {OUT} {{ {ONES} y = MatMul(h, table) }}", SHIFTED)
T.fires(f"{HOT}/MatMul", f"{IDS} => {OUT} {{ {ONES} y = MatMul(h, table) }}", SHIFTED, opset=13)
T.fires(
    f"{HOT}/MatMul", f"int32[N,1] x => float[a,c] y {{ {ONES.replace('x, span', 'mixed, x')} y = MatMul(h, table) }}",
    SHIFTED,
)  # fmt: skip
T.fires(f"{HOT}/MatMul", f"int64[3,4,1] x => {OUT} {{ {ONES.replace('span', 'long')} y = MatMul(h, table) }}", SHIFTED)
T.fires(
    f"{HOT}/MatMul",
    f"{IDS} => float16[a,b,c] y {{ {ONES.replace('to=1', 'to=10')} y = MatMul(h, table_h) }}",
    SHIFTED,
    reference=False,
)
T.fires(f"{HOT}/MatMul", f"int64[3,4] x => {OUT} {{ h = OneHot(x, five, bits) y = MatMul(h, table) }}", WRAPPED)
T.fires(
    f"{HOT}/Gemm",
    "int32[N] x => float[a,c] y { h = OneHot<axis=1>(x, five, bits) y = Gemm<transB=1>(h, turned, row) }",
    "Less Add Where Clip Gather",
)
T.fires(
    f"{HOT}/Gemm",
    f"int32[N,1] x, float[6] z => float[a,c] y {{ {ONES.replace('span', 'mixed')} y = Gemm(h, table, z) }}",
    f"{SHIFTED} Add",
)
T.fires(
    f"{HOT}/MatMul",
    f"{IDS} => {OUT}, float[d,e,f] h {{ {ONES} y = MatMul(h, table) }}",
    "Equal Cast Clip Sub Squeeze Gather",
)


def stays(op: str, why: str, body: str, left: str, given: str = IDS, out: str = OUT) -> None:
    T.stays(f"{HOT}/{op}", why, f"{given} => {out} {{ {body} }}", left)


stays("MatMul", "wrong constant", f"{ONES} y = MatMul(h, wild)", PLAIN)
stays("MatMul", "wrong constant", f"{ONES.replace('span', 'gap')} y = MatMul(h, table)", PLAIN)
stays("MatMul", "too large", f"{ONES.replace('span', 'lowest')} y = MatMul(h, table)", PLAIN)
stays("MatMul", "other shape", f"{ONES} y = MatMul(h, table)", PLAIN, "int32[3,4,5] x")
stays("MatMul", "other order", f"{ONES} y = MatMul(turned, h)", PLAIN, "int32[3,5,1] x")
stays("MatMul", "not constant", f"{ONES} y = MatMul(h, w)", PLAIN, f"{IDS}, float[5,6] w")
stays("MatMul", "other operator", f"{ONES.replace('Equal', 'Less')} y = MatMul(h, table)", "Less Cast MatMul")
stays("MatMul", "other type", f"{ONES.replace('x, span', 'x, row')} y = MatMul(h, turned)", PLAIN, "float[3,4,1] x")
stays(
    "MatMul", "wrong constant", "h = OneHot(x, five, others) y = MatMul(h, table)", "OneHot MatMul", "int64[3,4] x"
)  # fmt: skip
stays(
    "MatMul", "wrong axis", "h = OneHot<axis=0>(x, five, bits) y = MatMul(h, table)", "OneHot MatMul", "int64[3,5] x"
)  # fmt: skip
ROWS = ONES.replace("span", "mixed")
MATRIX = "int32[5,1] x", "float[a,c] y"
stays("Gemm", "other order", f"{ROWS} y = Gemm<transA=1>(h, table)", "Equal Cast Gemm", *MATRIX)
stays("Gemm", "wrong constant", f"{ROWS} y = Gemm<alpha=0.5>(h, table)", "Equal Cast Gemm", *MATRIX)

FOLD = "fold_into_tables"
LOOK = "int64[3,4] x => float[a,b,c] y { g = Gather(table, x) "
GELU = "a = Add(g, row) b = Mul(half, a) c = Mul(a, b) d = Tanh(c) f = Mul(d, ones) y = Mul(a, f)"
T.fires(FOLD, f"{LOOK} {GELU} }}", "Gather", "float[d,e,f] g", "Gather Add Mul Mul Tanh Mul Mul")
T.fires(FOLD, f"{LOOK} a = Add(g, row) b = Tanh(a) y = Sub(b, a) }}", "Gather")
T.fires(FOLD, f"{IDS} => {OUT} {{ {ONES} m = MatMul(h, table) y = Add(m, ones) }}", SHIFTED)
T.stays(FOLD, "other shape", f"{LOOK} y = Add(g, side) }}", "Gather Add")
T.stays(FOLD, "not constant", "float[6] z, " + LOOK + "y = Add(g, z) }", "Gather Add")
T.stays(
    FOLD, "wrong axis", "int64[5,2] x => float[a,b,c] y { g = Gather<axis=1>(table, x) y = Tanh(g) }", "Gather Tanh"
)
T.stays(FOLD, "other operator", f"{LOOK} y = Softmax(g) }}", "Gather Softmax")
T.stays(
    FOLD,
    "second consumer",
    """int64[3,4] x, float[2,5] k => float[a,b,c] y, float[d,e] z {
    g = Gather(table, x) y = Tanh(g) z = MatMul(k, table) }""",
    "Gather Tanh MatMul",
)
