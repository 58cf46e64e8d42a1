"""What changes nothing, what only rearranges, bounds, equal nodes, dead nodes and folds."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Table

T = Table(
    zero=np.float32(0), one=np.float32(1), half=np.float32(0.5), six=np.float32(6), two=np.float32(2),
    nan=np.float32(np.nan), shape=np.array([2, 6]), line=np.array([12]), same=np.array([1, 1]),
    first=np.array([0, 0]), ends=np.array([2, 6]), back=np.array([-1]), far=np.array([-100]), last=np.array([1]),
    nothing=np.zeros(4, np.int64), moved=np.array([0, 1, 0, -1]), deep=np.array([3, 2, 2]), keep=np.array([0, -1]),
    wide=np.array([2, 2, 6]), twice=np.array([1, 2]), ones=np.ones((1, 2, 6), np.float32), row=np.arange(6, dtype="f4"),
    at=np.array(0), many=np.array([1000, 2000]), neg=np.float32(-1), h0=np.float16(0.25), h6=np.float16(6),
    s=np.float32(0.05), s2=np.float32(0.06), z=np.uint8(7), flat=np.array([-1]), i0=np.int32(-1), i6=np.int32(6),
)  # fmt: skip
X = "float[2,6] x => float[a,b] y"


def unchanged(op: str, body: str, between: bool = True) -> None:
    """A node n that equals e: gone, whoever reads e; two outputs of one tensor keep their names."""
    graph = f"{X} {{ e = Abs(x) {body} y = Sign(n) }}"
    T.fires(f"remove_identities/{op}", graph, "Abs Sign")
    if between:
        names = "float[2,6] x => float[a,b] e, float[c,d] n"
        T.stays(f"remove_identities/{op}", "graph output", f"{names} {{ e = Abs(x) {body} }}", f"Abs {op}")


def changed(op: str, why: str, body: str, graph: str = X, left: str = "", **form: bool) -> None:
    full = f"{graph} {{ e = Abs(x) {body} y = Sign(n) }}"
    T.stays(f"remove_identities/{op}", why, full, f"Abs {left or op} Sign", **form)


unchanged("Identity", "n = Identity(e)")
unchanged("Dropout", "n = Dropout(e)")
unchanged("Cast", "n = Cast<to=1>(e)")
unchanged("Reshape", "n = Reshape(e, shape)")
unchanged("Transpose", "n = Transpose<perm=[0,1]>(e)")
unchanged("Expand", "n = Expand(e, same)")
unchanged("Tile", "n = Tile(e, same)")
unchanged("Flatten", "n = Flatten<axis=1>(e)")
unchanged("Slice", "n = Slice(e, first, ends)")
unchanged("Pad", "n = Pad(e, nothing)")
unchanged("Concat", "n = Concat<axis=0>(e)")
unchanged("Add", "n = Add(e, zero)")
unchanged("Mul", "n = Mul(one, e)")
unchanged("Div", "n = Div(e, one)")
unchanged("Sub", "n = Sub(e, zero)")
unchanged("Squeeze", "u = Unsqueeze(e, last) n = Squeeze(u, last)", between=False)
unchanged("Unsqueeze", "l = Reshape(e, line) m = Reshape(l, shape) u = Unsqueeze(m, last) n = Reshape(u, shape)", False)
changed("Transpose", "wrong axis", "n = Transpose<perm=[1,0]>(e)")
changed("Slice", "wrong constant", "n = Slice(e, back, far, last, back)")
changed("Pad", "wrong constant", "n = Pad(e, moved)", reference=False)
changed("Sub", "other order", "n = Sub(zero, e)")
changed("Div", "other order", "n = Div(one, e)")
changed("Mul", "wrong constant", "n = Mul(e, half)")
changed("Add", "wrong constant", "n = Add(e, nan)")
changed("Add", "other shape", "n = Add(e, ones)", "float[2,6] x => float[a,b,c] y")
FILLED = "k = Shape(x) f = ConstantOfShape{}(k) n = Add(e, f)"
N6 = "float[N,6] x => float[a,b] y"
T.fires("remove_identities/Add", f"{N6} {{ e = Abs(x) {FILLED.format('')} y = Sign(n) }}", "Abs Sign")
T.stays(
    "remove_identities/Add",
    "wrong constant",
    f"{N6} {{ e = Abs(x) {FILLED.format('<value=float[1]{1}>')} y = Sign(n) }}",
    "Abs Shape ConstantOfShape Add Sign",
)
changed("Expand", "other shape", "n = Expand(e, wide)", "float[2,6] x => float[a,b,c] y")
changed("Tile", "other shape", "n = Tile(e, twice)")
changed("Reshape", "other shape", "n = Reshape(e, deep)", "float[2,6] x => float[a,b,c] y")
changed("Flatten", "wrong axis", "n = Flatten<axis=2>(e)")
changed("Unsqueeze", "other shape", "n = Unsqueeze(e, last)", "float[2,6] x => float[a,b,c] y")
changed(
    "Squeeze", "other shape", "s = Softmax(e) n = Squeeze(s, last)", "float[6,1] x => float[a] y", "Softmax Squeeze"
)
changed("Concat", "other shape", "n = Concat<axis=0>(e, e)")
changed("Identity", "other operator", "n = Softmax(e)", left="Softmax")
changed("Cast", "other type", "h = Cast<to=10>(e) n = Cast<to=1>(h)", left="Cast Cast")
T.stays(
    "remove_identities/Dropout",
    "not constant",
    """float[20,6] x => float[a,b] y {
    m = ReduceMax<keepdims=0>(x) t = Less(m, zero) e = Abs(x) n = Dropout(e, half, t) y = Sign(n) }""",
    "ReduceMax Less Abs Dropout Sign",
)

T.fires(
    "shorten_chains/Transpose",
    "float[N,3,4] x => float[a,b,c] y { t = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[2,1,0]>(t) }",
    "Transpose",
)
T.fires(
    "shorten_chains/Transpose",
    "float[2,3] x => float[a,b] y, float[c,d] t { t = Transpose(x) s = Transpose(t) y = Neg(s) }",
    "Transpose Neg",
)
T.stays(
    "shorten_chains/Transpose",
    "other operator",
    "float[4,3] x => float[a,b] y { t = Transpose(x) s = Softmax(t) y = Transpose(s) }",
    "Transpose Softmax Transpose",
)
T.fires(
    "shorten_chains/Reshape", "float[2,6] x => float[a,b,c] y { t = Reshape(x, line) y = Reshape(t, deep) }", "Reshape"
)
T.stays(
    "shorten_chains/Reshape",
    "wrong constant",
    "float[2,6] x => float[a,b] y { t = Reshape(x, deep) y = Reshape(t, keep) }",
    "Reshape Reshape",
)
T.fires("shorten_chains/Cast", "float16[2,6] x => double[a,b] y { t = Cast<to=1>(x) y = Cast<to=11>(t) }", "Cast")
for code, kind in ((10, "other type"), (7, "other type"), (9, "other type")):
    T.stays(
        "shorten_chains/Cast",
        kind,
        f"float[2,6] x => float[a,b] y {{ t = Cast<to={code}>(x) y = Cast<to=1>(t) }}",
        "Cast Cast",
        odd=code == 10,
    )

for name, body, left in (
    ("Relu Clip", "r = Relu(x) y = Clip(r, zero, six)", "Clip"), ("Relu Clip", "r = Relu(x) y = Clip(r, neg, six)",
    "Clip"),
    ("Clip Relu", "r = Clip(x, neg, six) y = Relu(r)", "Clip"), ("Clip Clip",
    "r = Clip(x, zero, six) y = Clip(r, one, two)", "Clip"),
    ("Clip Clip", "r = Clip(x, one, two) y = Clip(r, , neg)", "Clip"), ("Relu Relu", "r = Relu(x) y = Relu(r)", "Relu"),
    ("Clip Relu", "r = Clip(x, neg) y = Relu(r)", "Clip"),
):  # fmt: skip
    T.fires("join_clips", f"{X} {{ {body} }}", left, "float[c,d] r", name, odd=True, reference="neg)" not in body)
T.fires("join_clips", "float16[2,6] x => float16[a,b] y { r = Relu(x) y = Clip(r, h0, h6) }", "Clip")
T.fires("join_clips", f"{X} {{ r = Relu(x) y = Clip<max=1.5>(r) }}", "Clip", opset=10)
T.stays("join_clips", "wrong constant", f"{X} {{ r = Clip(x, six, zero) y = Relu(r) }}", "Clip Relu")
T.stays(
    "join_clips", "not constant", "float[2,6] x, float s => float[a,b] y { r = Relu(x) y = Clip(r, s) }", "Relu Clip"
)
T.stays("join_clips", "other type", "int32[2,6] x => int32[a,b] y { r = Clip(x, i0, i6) y = Clip(r, i6) }", "Clip Clip")
T.stays("join_clips", "other operator", f"{X} {{ r = LeakyRelu(x) y = Clip(r, zero, six) }}", "LeakyRelu Clip")

T.fires("merge_equal", f"{X} {{ e = Exp(x) f = Exp(x) y = Add(e, f) }}", "Exp Add")
T.fires("merge_equal", "float[2,6] x => float[a,b] y, float[c,d] e { e = Exp(x) f = Exp(x) y = Add(e, f) }", "Exp Add")
T.stays(
    "merge_equal", "graph output", "float[2,6] x => float[a,b] e, float[c,d] f { e = Exp(x) f = Exp(x) }", "Exp Exp"
)
T.stays(
    "merge_equal", "wrong axis", f"{X} {{ e = Softmax<axis=0>(x) f = Softmax(x) y = Add(e, f) }}", "Softmax Softmax Add"
)
T.stays("merge_equal", "other order", f"{X} {{ e = Sub(x, row) f = Sub(row, x) y = Mul(e, f) }}", "Sub Sub Mul")

T.fires("remove_dead", f"{X} {{ e = Exp(x) f = Neg(e) y = Abs(x) }}", "Abs")
T.stays(
    "remove_dead",
    "graph output",
    "float[2,6] x => float[a,b] y, float[c,d] f { e = Exp(x) f = Neg(e) y = Abs(x) }",
    "Exp Neg Abs",
)

T.fires("fold_constants", f"{X} {{ e = Exp(row) f = Add(e, half) y = Mul(x, f) }}", "Mul")
T.fires(
    "fold_constants",
    "float[2,6] x => float[a,b] y { s = Shape(x) t = Gather(s, back) u = Concat<axis=0>(t, last) "
    "v = Concat<axis=0>(back, last) y = Reshape(x, v) }",
    "Reshape",
)
T.fires("fold_constants", "float[2,6] x => float[a,b] y, float[6] e { e = Exp(row) y = Mul(x, e) }", "Mul")
T.fires("fold_constants", f"{X} {{ e = CastLike(at, x) y = Mul(x, e) }}", "Mul")
SIZE_OF = "n = Shape<start=1, end=2>(x) f = Cast<to=1>(n) r = Sqrt(f) y = Div(x, r)"
T.fires("fold_constants", f"float[N,6] x => float[a,b] y {{ {SIZE_OF} }}", "Div")
T.stays("fold_constants", "not constant", f"float[6,N] x => float[a,b] y {{ {SIZE_OF} }}", "Shape Cast Sqrt Div")
T.stays(
    "fold_constants", "not constant", "float[2,6] x, float[6] z => float[a,b] y { e = Exp(z) y = Mul(x, e) }", "Exp Mul"
)
T.stays(
    "fold_constants",
    "too large",
    "float[1000,1] x => float[a,b] y { e = Expand(half, many) y = Mul(x, e) }",
    "Expand Mul",
)

Q, D = "QuantizeLinear({}, s, z)", "DequantizeLinear({}, s, z)"
MADE = f"q = {Q.format('x')} d = {D.format('q')} r = Reshape(d, flat)"
PAIRS = f"float[2,6] x => float[a] y {{ {MADE} p = {Q.format('r')} y = {D.format('p')} }}"
ROUNDED = "QuantizeLinear DequantizeLinear Reshape"
AGAIN = f"{ROUNDED} QuantizeLinear DequantizeLinear"
T.fires("cancel_quantization", PAIRS, ROUNDED)
T.fires(
    "cancel_quantization",
    f"{X.replace('float[a', 'uint8[a')} {{ q = {Q.format('x')} d = {D.format('q')} y = {Q.format('d')} }}",
    "QuantizeLinear",
)
T.stays("cancel_quantization", "wrong constant", PAIRS.replace("(p, s,", "(p, s2,"), AGAIN)
T.stays(
    "cancel_quantization",
    "other operator",
    PAIRS.replace("Reshape(d, flat)", "Abs(d)").replace("[a]", "[a,b]"),
    AGAIN.replace("Reshape", "Abs"),
)
T.fires("cancel_quantization", PAIRS.replace("[a] y", "[a] y, uint8[b] p"), f"{ROUNDED} QuantizeLinear")

for op, body in (
    ("Transpose", "t = Transpose(e) n = Transpose(t)"),
    ("Cast", "t = Cast<to=11>(e) n = Cast<to=1>(t)"),
):  # fmt: skip
    T.fires(f"shorten_chains/{op}", f"{X} {{ e = Abs(x) {body} y = Sign(n) }}", "Abs Sign")
THREE = "a = Transpose<perm=[1,2,0]>(x) b = Transpose<perm=[1,2,0]>(a) y = Transpose<perm=[0,2,1]>(b)"
T.fires("shorten_chains/Transpose", f"float[N,3,4] x => float[a,b,c] y {{ {THREE} }}", "Transpose")
T.fires(
    "remove_identities/Identity",
    "float[3] x => float[3] y, float[3] z { e = Abs(x) y = Identity(e) z = Identity(x) }",
    "Abs Identity",
)
unchanged("Reshape", "t = Reshape(e, line) n = Reshape(t, shape)", between=False)
KEPT = "then_branch = g1 () => (float[3] a) { a = Neg(n) }, else_branch = g2 () => (float[3] b) { b = Abs(n) }"
T.stays(
    "remove_identities/Identity",
    "second consumer",
    "float[3] x => float[3] y { m = ReduceMax<keepdims=0>(x) "
    f"c = Less(m, zero) e = Abs(x) n = Identity(e) y = If (c) <{KEPT}> }}",
    "ReduceMax Less Abs Identity If Neg Abs",
)
