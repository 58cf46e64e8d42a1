"""Norms and softmax from their pieces; what ends a heavy kernel; elementwise nodes in one kernel."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Array, Table

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


ROW = np.linspace(-1, 1, 8, dtype=np.float32)
NUMBERS = {
    "two": 2, "three": 3, "four": 4, "eps": 1e-5, "one": 1, "half": 0.5, "minus": -0.5, "third": 1 / 3, "root": 2**0.5,
    "inverse": 2**-0.5, "zero": 0, "six": 6, "cubic": 0.044715, "pi": (2 / np.pi) ** 0.5,
}  # fmt: skip
T = Table(
    last=np.array([-1]), middle=np.array([1]), both=np.array([1, 2]), scale=ROW + 2, bias=ROW,
    plane=np.stack([ROW + 2] * 3),
    col=np.linspace(1, 2, 3, dtype=np.float32).reshape(3, 1), whole=np.stack([ROW, ROW + 1, ROW + 2]),
    wc=normal(4, 3, 3, 3), wt=normal(3, 4, 2, 2), w=normal(8, 8), b=normal(8), k=normal(4, 1, 1),
    wide=normal(2, 2, 4, 5, 6),
    nw=RNG.integers(0, 255, (8, 1, 8)).astype(np.uint8), ns=np.abs(normal(8)) + 0.1, s=np.float32(0.05), z=np.uint8(3),
    cube=np.array([3, 4, 2]), **{k: np.float32(v) for k, v in NUMBERS.items()},
    **{f"{k}_h": np.float16(v) for k, v in NUMBERS.items()}, scale_h=(ROW + 2).astype(np.float16),
    bias_h=ROW.astype(np.float16), scale_6=(ROW[:6] + 2).astype(np.float16), bias_6=ROW[:6].astype(np.float16),
    w_h=normal(8, 8).astype(np.float16),
)  # fmt: skip
X, Y = "float[N,3,8] x", "float[a,b,c] y"
HALVES = {"rtol": 2e-2, "atol": 1e-2}

CENTRE = "m = ReduceMean(x, last) d = Sub(x, m) "
SPREAD = "v = ReduceMean(q, last) e = Add(v, eps) s = Sqrt(e) "
LAYER = f"{CENTRE} q = Pow(d, two) {SPREAD} n = Div(d, s) "
RMS = f"q = Pow(x, two) {SPREAD} n = Div(x, s) "
AFFINE = "k = Mul(n, scale) y = Add(k, bias)"
LN, RN = "LayerNormalization", "RMSNormalization"


def norm(pattern: str, body: str, left: str = "", given: str = X, out: str = Y, **form: object) -> None:
    T.fires(f"fuse_norms/{pattern}", f"{given} => {out} {{ {body} }}", left or pattern, **form)


def no_norm(pattern: str, why: str, body: str, left: str, given: str = X, out: str = Y, **form: object) -> None:
    T.stays(f"fuse_norms/{pattern}", why, f"{given} => {out} {{ {body} }}", left, **form)


PIECES = "ReduceMean Sub Pow ReduceMean Add Sqrt Div Mul Add"
SQUARES, EXPONENTIALS = "Pow ReduceMean Add Sqrt Div", "ReduceMax Sub Exp ReduceSum Div"
for opset in (11, 17, 20):
    old = LAYER.replace("ReduceMean(", "ReduceMean<axes=[-1]>(").replace(", last)", ")")
    norm(LN, (LAYER if opset > 17 else old) + AFFINE, opset=opset)
norm(LN, LAYER + AFFINE, odd=True)
for before, after in (
    ("Pow(d, two)", "Mul(d, d)"), ("n = Div(d, s)", "r = Reciprocal(s) n = Mul(r, d)"), ("Add(v, eps)", "Add(eps, v)"),
    ("n = Div(d, s)", "r = Div(one, s) n = Mul(d, r)"), ("s = Sqrt(e)", "s = Pow(e, half)"),
    ("s = Sqrt(e)  n = Div(d, s)", "s = Pow(e, minus) n = Mul(d, s)"),
    ("s = Sqrt(e)  n = Div(d, s)", "i = Reciprocal(e) s = Sqrt(i) n = Mul(d, s)"),
):  # fmt: skip
    assert before in LAYER
    norm(LN, LAYER.replace(before, after) + AFFINE)
    if before.replace("d, s", "x, s").replace("(d", "(x") in RMS:
        norm(
            RN,
            RMS.replace(before.replace("(d", "(x"), after.replace("d)", "x)").replace("(d", "(x"))
            + "y = Mul(scale, n)",
        )
norm(LN, LAYER + "k = Mul(scale, n) y = Add(bias, k)")
norm(LN, LAYER.replace("n = Div", "y = Div"))
norm(LN, (LAYER + "y = Mul(n, plane)").replace("last", "both"))
norm(RN, RMS + "y = Mul(n, scale)", odd=True)
norm(LN, LAYER + "y = Mul(n, whole)", f"{LN} Mul")

HALF_X, HALF_Y = "float16[N,3,8] x", "float16[a,b,c] y"
TO, BACK = "f = Cast<to=1>(x)", "h = Cast<to=10>(n)"
AFFINE_H = "k = Mul(h, scale_h) y = Add(k, bias_h)"
HALF = {"given": HALF_X, "out": HALF_Y, "tolerance": HALVES}
norm(LN, LAYER.replace("two", "two_h").replace("eps", "eps_h") + AFFINE_H.replace("(h", "(n"), **HALF)
norm(LN, f"{TO} {LAYER.replace('x', 'f')} {BACK} {AFFINE_H}", **HALF)
norm(LN, f"{TO} {LAYER.replace('x', 'f')} {AFFINE.replace('y =', 'o =')} y = Cast<to=10>(o)", **HALF)
norm(LN, f"{CENTRE} w0 = Cast<to=1>(d) q = Pow(w0, two) {SPREAD} t = Cast<to=10>(s) h = Div(d, t) {AFFINE_H}", **HALF)
norm(RN, f"{TO} {RMS.replace('x', 'f')} {BACK} y = Mul(scale_h, h)", **HALF)
no_norm(
    LN,
    "other type",
    f"f = Cast<to=10>(x) {LAYER.replace('x', 'f').replace('two', 'two_h').replace('eps', 'eps_h')} y = Mul(n, scale_h)",
    f"Cast {LN}",
    out=HALF_Y,
    tolerance=HALVES,
)

for piece in "dsvmqe":
    no_norm(LN, "graph output", LAYER + AFFINE, PIECES, out=f"{Y}, float[f,g,h] {piece}")
    no_norm(LN, "second consumer", f"{LAYER} {AFFINE} zz = Neg({piece})", f"{PIECES} Neg", out=f"{Y}, float[f,g,h] zz")
no_norm(
    LN, "wrong axis", (LAYER + AFFINE).replace("last", "middle").replace("scale", "col").replace("bias", "col"), PIECES
)
no_norm(LN, "wrong axis", LAYER.replace("(x, last)", "(x, middle)") + AFFINE, f"ReduceMean Sub {RN} Add")
no_norm(LN, "other operator", LAYER.replace("m = ReduceMean", "m = ReduceMax") + AFFINE, f"ReduceMax Sub {RN} Add")
no_norm(LN, "wrong constant", LAYER.replace("two", "four") + AFFINE, PIECES)
no_norm(
    LN, "other operator", LAYER.replace("Add(v, eps)", "Sub(v, eps)") + AFFINE, PIECES.replace("Add Sqrt", "Sub Sqrt")
)
no_norm(LN, "other order", LAYER.replace("d = Sub(x, m)", "d = Sub(m, x)") + AFFINE, f"ReduceMean Sub {RN} Add")
no_norm(LN, "not constant", LAYER.replace("eps", "f") + AFFINE, PIECES, f"{X}, float[1] f")
for why, before, after in (
    ("wrong constant", "two", "four"), ("wrong constant", "Sqrt(e)", "Pow(e, third)"), ("wrong axis", "last", "middle"),
    ("other order", "Div(x, s)", "Div(s, x)"),
):  # fmt: skip
    left = SQUARES.replace("Sqrt", "Pow") if "third" in after else SQUARES
    no_norm(RN, why, RMS.replace(before, after).replace("n =", "y ="), left)
no_norm(RN, "graph output", RMS.replace("n =", "y ="), SQUARES, out=f"{Y}, float[f,g,h] s")
no_norm(RN, "second consumer", RMS.replace("n =", "y =") + "zz = Neg(s)", f"{SQUARES} Neg", out=f"{Y}, float[f,g,h] zz")

SPLIT = (
    "m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) e = Add(v, eps) s = Sqrt(e) "
    "r = Reciprocal(s) i = Mul(r, scale) u = Mul(x, i) w = Mul(m, i) h = Sub(bias, w) y = Add(u, h)"
)
SPLIT_PIECES = "ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Mul Mul Sub Add"
norm(LN, SPLIT, odd=True)
norm(LN, SPLIT.replace("last", "both").replace("scale", "plane").replace("bias", "plane"))
norm(LN, SPLIT.replace("i = Mul(r, scale)", "").replace("(x, i)", "(x, r)").replace("(m, i)", "(r, m)"))
for before, after in (
    ("Mul(d, d)", "Pow(d, two)"), ("d = Sub(x, m)", "d = Sub(m, x)"), ("Add(u, h)", "Add(h, u)"),
    ("Mul(r, scale)", "Mul(scale, r)"), ("Mul(x, i)", "Mul(i, x)"),
    ("s = Sqrt(e) r = Reciprocal(s)", "r = Pow(e, minus)"),
):  # fmt: skip
    assert before in SPLIT
    norm(LN, SPLIT.replace(before, after))
norm(LN, SPLIT.replace("scale", "scale_h").replace("bias", "bias_h").replace("eps", "eps_h"), **HALF)
for piece in "mdqvesriuwh":
    shape = "float[f,g,h]"
    no_norm(LN, "graph output", SPLIT, SPLIT_PIECES, out=f"{Y}, {shape} {piece}")
    no_norm(LN, "second consumer", f"{SPLIT} zz = Neg({piece})", f"{SPLIT_PIECES} Neg", out=f"{Y}, {shape} zz")
for why, before, after, left in (
    ("wrong axis", "v = ReduceMean(q, last)", "v = ReduceMean(q, middle)", SPLIT_PIECES),
    ("wrong axis", "m = ReduceMean(x, last)", "m = ReduceMean(x, both)", SPLIT_PIECES),
    ("wrong axis", "scale", "col", SPLIT_PIECES), ("other shape", "bias", "whole", SPLIT_PIECES),
    ("wrong constant", "r = Reciprocal(s)", "r = Pow(s, minus)", SPLIT_PIECES.replace("Reciprocal", "Pow")),
    ("wrong constant", "q = Mul(d, d)", "q = Pow(d, three)", SPLIT_PIECES.replace("Sub Mul", "Sub Pow", 1)),
    ("other order", "Sub(bias, w)", "Sub(w, bias)", SPLIT_PIECES),
    ("other operator", "y = Add(u, h)", "y = Sub(u, h)", SPLIT_PIECES.removesuffix("Add") + "Sub"),
    ("other operator", "w = Mul(m, i)", "w = Mul(m, r)", SPLIT_PIECES),
):  # fmt: skip
    assert before in SPLIT
    no_norm(LN, why, SPLIT.replace(before, after), left)
no_norm(LN, "not constant", SPLIT.replace("eps", "f"), SPLIT_PIECES, f"{X}, float[1] f")

SOFTMAX = "m = ReduceMax(x, last) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) y = Div(e, s)"
norm("Softmax", SOFTMAX, odd=True)
norm("Softmax", SOFTMAX.replace("last", "middle"))
norm("Softmax", SOFTMAX.replace("ReduceMax(x, last)", "ReduceMax<axes=[-1]>(x)"), opset=13)
norm("Softmax", SOFTMAX, given=HALF_X, out=HALF_Y)
for piece in "mdes":
    no_norm("Softmax", "graph output", SOFTMAX, EXPONENTIALS, out=f"{Y}, float[f,g,h] {piece}")
    no_norm(
        "Softmax", "second consumer", f"{SOFTMAX} zz = Neg({piece})", f"{EXPONENTIALS} Neg", out=f"{Y}, float[f,g,h] zz"
    )
for why, before, after in (
    ("wrong axis", "(x, last)", "(x, middle)"), ("wrong axis", "last", "both"), ("other operator", "ReduceMax",
    "ReduceMin"),
    ("other order", "Div(e, s)", "Div(s, e)"),
):  # fmt: skip
    no_norm(
        "Softmax",
        why,
        SOFTMAX.replace(before, after),
        EXPONENTIALS.replace("ReduceMax", after if "Min" in after else "ReduceMax"),
    )
no_norm("Softmax", "other operator", "e = Exp(x) s = ReduceSum(e, last) y = Div(e, s)", "Exp ReduceSum Div")
flat = SOFTMAX.replace("ReduceSum(", "ReduceSum<keepdims=0>(").replace(
    "y = Div(e, s)", "t = Unsqueeze(s, last) y = Div(e, t)"
)
no_norm("Softmax", "other shape", flat, EXPONENTIALS)

SUMS = {
    LN: (f"y = {LN}(m, scale, bias)", "com.microsoft:SkipLayerNormalization"),
    RN: (f"y = {RN}(m, scale)", "com.microsoft:SkipSimplifiedLayerNormalization"),
}
PAIR = f"{X}, float[N,3,8] r"
for op, (body, left) in SUMS.items():
    pattern, added = f"fuse_skips/{op}", f"{{ m = Add(x, r) {body}"
    T.fires(pattern, f"{PAIR} => {Y} {added} }}", left, opset=23, odd=True)
    T.fires(pattern, f"{PAIR} => {Y}, float[d,e,f] m {added} }}", left, opset=23)
    T.fires(pattern, f"{PAIR} => {Y}, float[d,e,f] z {added} z = Softmax(m) }}", f"{left} Softmax", opset=23)
    earlier = f"{PAIR} => {Y}, float[d,e,f] z {{ m = Add(x, r) z = Softmax(m) {body} }}"
    T.stays(pattern, "second consumer", earlier, f"Add Softmax {op}", opset=23)
    T.stays(pattern, "other operator", f"{PAIR} => {Y} {added.replace('Add', 'Sub')} }}", f"Sub {op}", opset=23)
    T.stays(pattern, "other shape", f"{X}, float[8] r => {Y} {added} }}", f"Add {op}", opset=23)
    wide = added.replace(f"{op}(", f"{op}<axis=1>(").replace("scale", "plane").replace("bias", "plane")
    T.stays(pattern, "wrong axis", f"{PAIR} => {Y} {wide} }}", f"Add {op}", opset=23)
    halves = added.replace("scale", "scale_h").replace("bias", "bias_h")
    pair_h, form_h = PAIR.replace("float", "float16"), {"opset": 23, "tolerance": HALVES}
    T.fires(pattern, f"{pair_h} => {HALF_Y} {halves} }}", left, **form_h)
    T.fires(pattern, f"{pair_h} => {HALF_Y}, float16[d,e,f] m {halves} }}", left, **form_h)
    cast = f"{{ s = Add(x, r) m = Cast<to=1>(s) {body}"
    T.stays(pattern, "other type", f"{pair_h} => {Y} {cast} }}", f"Add Cast {op}", **form_h)
    odd = f"{pair_h} => {HALF_Y} {halves} }}".replace(",3,8]", ",3,6]").replace("_h", "_6")
    T.stays(pattern, "other shape", odd, f"Add {op}", **form_h)
