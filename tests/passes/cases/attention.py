"""Attention from its pieces: as frameworks write it, with masks, Casts, shared heads and a past."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Table

T = Table(
    by_head=np.array([0, 0, 3, 8]), flat=np.array([0, 0, 24]), no=np.array(0), step=np.array(1), rows=np.array([1]),
    deep=np.array([2]), two=np.array([2]), eight=np.array([8]), last=np.array([-1]), heads=np.array([0, 4, -1, 8]),
    axes3=np.array([1, 2, 3]), axes2=np.array([0, 1, 2]), one=np.float32(1), half=np.float32(0.5), zero=np.float32(0),
    low=np.float32(-3e38), hidden=np.float32(-np.inf), eighth=np.float32(8**-0.5),
)  # fmt: skip

QKV = "float[2,S,24] q, float[2,T,24] k, float[2,T,24] v"
BEFORE = """q4 = Reshape(q, by_head) qh = Transpose<perm=[0,2,1,3]>(q4) k4 = Reshape(k, by_head)
  kh = Transpose<perm=[0,2,3,1]>(k4) v4 = Reshape(v, by_head) vh = Transpose<perm=[0,2,1,3]>(v4)"""
AFTER = "r = MatMul(p, vh) rt = Transpose<perm=[0,2,1,3]>(r) y = Reshape(rt, flat)"


def attention(why: str, left: str, middle: str, given: str = QKV, out: str = "float[2,S,24] y", **form: object) -> None:
    graph = f"{given} => {out} {{ {BEFORE} {middle} {AFTER} }}"
    if why == "fires":
        T.fires("fuse_attention", graph, left, **form)
    else:
        T.stays("fuse_attention", why, graph, left, **form)


PIECES = "Transpose Transpose Transpose MatMul Softmax MatMul Transpose"
SCALED = "s0 = MatMul(qh, kh) s = Mul(s0, eighth) "
CLEARED = "p0 = Softmax<axis=-1>(t) nan = IsNaN(p0) p = Where(nan, zero, p0)"
SOFT = "p = Softmax<axis=-1>(t)"
SIZES_OF = """sq = Shape<start=1, end=2>(q) sk = Shape<start=1, end=2>(k) nq = Squeeze(sq) nk = Squeeze(sk)
  iq = Range(no, nq, step) ik = Range(no, nk, step) iu = Unsqueeze(iq, rows)"""
EXPORTED = f"""{SIZES_OF} seen = LessOrEqual(ik, iu) sb = Shape<start=0, end=1>(q) nb = Squeeze(sb)
  ib = Range(no, nb, step) bu = Unsqueeze(ib, axes3)
  ku = Unsqueeze(ik, axes2) all = Concat<axis=0>(sb, rows, rows, sk) be = Expand(bu, all)
  ke = Expand(ku, all) bl = Unsqueeze(be, last) kl = Unsqueeze(ke, last) at = Concat<axis=-1>(bl, kl)
  given = GatherND(there, at) both = And(seen, given) mask = Where(both, zero, hidden) qs = Mul(qh, half)
  ks = Mul(kh, half)
  s = MatMul(qs, ks) t = Add(s, mask) {CLEARED}"""
attention("fires", "Attention", f"t = MatMul(qh, kh) {SOFT}")
attention("fires", "Attention", f"s0 = MatMul(qh, kh) t = Div(s0, half) {SOFT}")
attention("fires", "Attention", f"{SCALED} t = Add(s, mask) {SOFT}", f"{QKV}, float[2,1,S,T] mask", odd=True)
attention("fires", "Attention", f"{SCALED} t = Where(mask, s, low) {SOFT}", f"{QKV}, bool[2,1,S,T] mask")
attention(
    "fires",
    "And Attention",
    f"{SCALED} both = And(mask, more) t = Where(both, s, hidden) {CLEARED}",
    f"{QKV}, bool[2,1,1,T] mask, bool[S,T] more",
)
attention(
    "fires",
    "Range Range LessOrEqual Where Attention",
    f"{SIZES_OF} seen = LessOrEqual(ik, iu) bias = Where(seen, zero, hidden) {SCALED} t = Add(s, bias) {SOFT}",
)
attention(
    "fires",
    "Range Range LessOrEqual Expand Expand Concat GatherND And Where Attention",
    EXPORTED,
    f"{QKV}, bool[2,T] there",
)
attention(
    "fires",
    "Attention",
    "qs = Mul(qh, eighth) ks = Div(kh, one) t = MatMul(qs, ks) p0 = Softmax<axis=3>(t) p = Dropout(p0)",
)
attention(
    "fires",
    "Attention",
    f"s0 = MatMul(qh, kh) s = Cast<to=1>(s0) t = Mul(s, eighth) {SOFT.replace('p =', 'p0 =')} p = Cast<to=10>(p0)",
    QKV.replace("float", "float16"),
    "float16[2,S,24] y",
    tolerance={"rtol": 1e-2, "atol": 5e-3},
)
attention("graph output", PIECES, f"t = MatMul(qh, kh) {SOFT}", out="float[2,S,24] y, float[a,b,c,d] p")
attention("graph output", PIECES, f"t = MatMul(qh, kh) {SOFT}", out="float[2,S,24] y, float[a,b,c,d] t")
attention(
    "second consumer",
    PIECES.replace("Softmax", "Softmax Neg"),
    f"t = MatMul(qh, kh) {SOFT} z = Neg(p)",
    out="float[2,S,24] y, float[a,b,c,d] z",
)
attention(
    "second consumer",
    PIECES.replace("Softmax", "Softmax Neg"),
    f"t = MatMul(qh, kh) {SOFT} z = Neg(t)",
    out="float[2,S,24] y, float[a,b,c,d] z",
)
attention("wrong axis", PIECES, "t = MatMul(qh, kh) p = Softmax<axis=2>(t)")
attention("other operator", PIECES.replace("Softmax", "LogSoftmax"), "t = MatMul(qh, kh) p = LogSoftmax<axis=-1>(t)")
attention(
    "wrong constant",
    PIECES.replace("Softmax", "Softmax IsNaN Where"),
    f"t = MatMul(qh, kh) {CLEARED.replace('zero', 'one')}",
)
MASKED = f"{QKV}, float[2,1,S,T] mask, float[2,1,S,T] other"
CAST = "low0 = CastLike(hidden, mask) none = CastLike(zero, p0)"
UNSEEN = f"{SCALED} t = Add(s, mask) p0 = Softmax<axis=-1>(t) {CAST} most = ReduceMax(mask, last) "
UNSEEN += "gone = Equal(most, low0) p = Where(gone, none, p0)"
LEFT = PIECES.replace("Softmax", "Softmax ReduceMax Equal Where").replace("MatMul Softmax", "MatMul Mul Add Softmax")
attention("fires", "Attention", UNSEEN, MASKED)
attention("wrong axis", LEFT, UNSEEN.replace("last", "rows"), MASKED.replace("1,S,T", "1,T,T").replace("S,24", "T,24"))
attention("wrong constant", LEFT, UNSEEN.replace("(hidden,", "(low,"), MASKED)
attention("other operator", LEFT, UNSEEN.replace("ReduceMax(mask", "ReduceMax(other"), MASKED)
OWN = "float[2,S,16] q, float[2,T,16] k, float[2,T,16] v{} => float[2,S,16] y {{ y = Attention<q_num_heads=2, "
T.fires("fuse_attention", f"{OWN.format('')} kv_num_heads=2>(q, k, v) }}", "Attention", opset=23)
T.fires("fuse_attention", f"{OWN.format(', float[S,T] m')} kv_num_heads=2>(q, k, v, m) }}", "Attention", opset=24)
GROUPED = """ku = Unsqueeze(k, deep) st = Shape<start=2, end=3>(k) to = Concat<axis=0>(two, two, two, st, eight)
ke = Expand(ku, to)
  kr = Reshape(ke, heads) vu = Unsqueeze(v, deep) ve = Expand(vu, to) vr = Reshape(ve, heads)
  kt = Transpose<perm=[0,1,3,2]>(kr) s = MatMul(q, kt) t = Mul(s, eighth) p = Softmax<axis=-1>(t) y = MatMul(p, vr)"""
T.fires(
    "fuse_attention",
    f"float[2,4,S,8] q, float[2,2,T,8] k, float[2,2,T,8] v => float[a,b,c,d] y {{ {GROUPED} }}",
    "Attention",
)
PAST = GROUPED.replace("(k)", "(kc)").replace("(k,", "(kc,").replace("(v,", "(vc,")
T.fires(
    "fuse_attention",
    "float[2,4,S,8] q, float[2,2,T,8] k, float[2,2,T,8] v, float[2,2,P,8] pk, float[2,2,P,8] pv => "
    "float[a,b,c,d] y, float[e,f,g,h] kc, float[i,j,l,m] vc "
    f"{{ kc = Concat<axis=2>(pk, k) vc = Concat<axis=2>(pv, v) {PAST} }}",
    "Concat Concat Attention",
)
T.stays(
    "fuse_attention",
    "other order",
    f"float[2,4,S,8] q, float[2,2,T,8] k, float[2,2,T,8] v => float[a,b,c,d] y {{ "
    f"{GROUPED.replace('Unsqueeze(v, deep)', 'Unsqueeze(v, rows)')} }}",
    "Expand Expand Attention",
)

for mask in ("S,T", "2,3,1,T"):
    attention("fires", "Attention", f"{SCALED} t = Add(s, mask) {SOFT}", f"{QKV}, float[{mask}] mask")
