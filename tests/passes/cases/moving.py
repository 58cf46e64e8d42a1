"""Nodes that only move elements, and images kept channels-last."""

from __future__ import annotations

import numpy as np

from tests.passes.cases.case import Array, Table

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


T = Table(
    one=np.array([1]), three=np.array([3]), first=np.array([0]), last=np.array([-1]), flat=np.array([-1]),
    around=np.array([0, 1, 0, 0, 2, 0]), wide=np.array([2, 3, 4]), half=np.float32(0.5), rows=np.array([2, 0, -1, 1]),
    pairs=np.array([[0, 1], [1, 0], [1, 2]]), each=np.array([[[0, 1]], [[2, 1]]]), zero=np.array(0), step=np.array(1),
    six=np.array(6), twice=np.array([1, 2, 1]), quants=RNG.integers(0, 255, (8, 16)).astype(np.uint8),
    two=np.array([2]),
    scales=np.abs(normal(8, 1)) + 0.1, w=normal(12, 8, 3, 3), v=normal(12, 12, 3, 3), narrow=normal(12, 3, 2, 2),
    few=normal(4, 3, 2, 2), spread=normal(12, 8, 2, 3), doubled=np.array([1, 1, 2, 2], np.float32),
    axes=np.array([2, 3]),
    channel=np.array([1]), wh=normal(12, 8, 3, 3).astype(np.float16), vh=normal(12, 12, 3, 3).astype(np.float16),
    table=normal(5, 4), places=normal(3, 4), cosine=normal(3, 4), sine=normal(3, 4), many=np.array([2**62]),
    nh=normal(12, 3, 2, 2).astype(np.float16),
)  # fmt: skip
NEXT = str.maketrans("abcdy", "efghm")
X, Y = "float[2,3,4] x", "float[a,b,c] y"

BLOCKS = "com.microsoft.GatherBlockQuantized<gather_axis=0, quantize_axis=1, block_size=16, bits=8>"
MOVES = {
    "Transpose": "m = Transpose<perm=[2,0,1]>(x)", "Slice": "m = Slice(x, one, three, one)",
    "Split": "m, n = Split<axis=2, num_outputs=2>(x)", "Pad": "m = Pad(x, around)",
    "Gather": "m = Gather<axis=1>(x, rows)",
    "GatherElements": "m = GatherElements<axis=1>(x, each)", "Tile": "m = Tile(x, twice)",
    "Expand": "m = Expand(x, wide)",
    "GatherND": "m = GatherND(x, pairs)", "DepthToSpace": "m = DepthToSpace<blocksize=2>(x)",
    "SpaceToDepth": "m = SpaceToDepth<blocksize=2>(x)", "Concat": "m = Concat<axis=1>(x, x)",
}  # fmt: skip
GIVEN = {"GatherND": "float[2,3,4,2] x", "DepthToSpace": "float[2,4,3,3] x", "SpaceToDepth": "float[2,1,4,4] x",
         "Expand": "float[2,1,4] x"}  # fmt: skip
for op, node in MOVES.items():
    given = GIVEN.get(op, X)
    out = "float[a,b,c,d] y" if op in ("DepthToSpace", "SpaceToDepth") else Y
    T.fires(f"fuse_moves/{op}", f"{given} => {out} {{ {node} y = Exp(m) }}", "Exp")
    T.stays(
        f"fuse_moves/{op}",
        "graph output",
        f"{given} => {out}, {out[:5]}{out[5:].translate(NEXT)} {{ {node} y = Exp(m) }}",
        f"{op} Exp",
    )
    T.stays(f"fuse_moves/{op}", "other operator", f"{given} => {out} {{ {node} y = Softmax(m) }}", f"{op} Softmax")
    half = out.replace("float", "float16")
    T.fires(f"fuse_moves/{op}", f"{given.replace('float', 'float16')} => {half} {{ {node} y = Neg(m) }}", "Neg")
SHAPED = {
    "Reshape": ("m = Reshape(t, flat)", "float[a] y", "float[d] m"), "Flatten": ("m = Flatten(t)", "float[a,b] y",
    "float[d,e] m"),
    "Unsqueeze": ("m = Unsqueeze(t, one)", "float[a,b,c,d] y", "float[e,f,g,h] m"),
    "Squeeze": ("m = Squeeze(t, last)", "float[a,b] y", "float[d,e] m"),
}  # fmt: skip
for op, (node, out, between) in SHAPED.items():
    given = "float[2,3,1] x" if op == "Squeeze" else X
    turned = f"t = Transpose<perm=[1,0,2]>(x) {node} y = Exp(m)"
    T.fires(f"fuse_moves/{op}", f"{given} => {out} {{ {turned} }}", "Exp")
    T.stays(f"fuse_moves/{op}", "graph output", f"{given} => {out}, {between} {{ {turned} }}", "Transpose Exp")
SIDE = "s = Shape<start=0, end=1>(x) k = Squeeze(s)"
INDICES = f"{SIDE} r = Range(zero, k, step) u = Unsqueeze(r, one) p = Less(r, u) q = Where(p, x, half) y = Abs(q)"
T.fires("fuse_moves/Range", f"float[N,N] x => float[a,b] y {{ {INDICES} }}", "Abs")
T.stays(
    "fuse_moves/Range",
    "graph output",
    f"float[N] x => float[a] y, int64[b] r {{ {SIDE} r = Range(zero, k, step) f = Cast<to=1>(r) y = Mul(f, x) }}",
    "Range Cast Mul",
)
LOOKED = f"p = {BLOCKS}(quants, i, scales) q = {BLOCKS}(quants, j, scales) y = Add(p, q)"
T.fires(
    "fuse_moves/com.microsoft:GatherBlockQuantized", f"int64[3] i, int64[3] j => float[a,b] y {{ {LOOKED} }}", "Add"
)
T.stays(
    "fuse_moves/com.microsoft:GatherBlockQuantized",
    "graph output",
    f"int64[3] i, int64[3] j => float[a,b] y, float[c,d] p {{ {LOOKED} }}",
    "com.microsoft:GatherBlockQuantized Add",
)
EMBEDDED = "p = Gather(table, i) q = Gather(places, j) y = Add(p, q)"
T.fires("fuse_moves/Gather", f"int64[2,3] i, int64[2,3] j => {Y} {{ {EMBEDDED} }}", "Add")
ROTARY = "a1 = Slice(x, first, two, last) a2 = Slice(x, two, many, last) n = Neg(a2) r = Concat<axis=-1>(n, a1)"
T.fires(
    "fuse_moves/Concat",
    f"float[2,3,4] x => {Y} {{ {ROTARY} p = Mul(x, cosine) q = Mul(r, sine) y = Add(p, q) }}",
    "Add",
)
T.fires("fuse_moves/Concat", f"{X} => {Y} {{ p = Exp(x) q = Neg(x) y = Concat<axis=1>(p, q) }}", "Concat")
T.stays("fuse_moves/Expand", "other order", f"float[2,3,1] x => {Y} {{ p = Exp(x) y = Expand(p, wide) }}", "Exp Expand")
T.stays(
    "fuse_moves/Transpose",
    "second consumer",
    "float[2,3,4] x => float[a,b,c] y, float[d,e,f] z "
    "{ p = Exp(x) y = Transpose<perm=[1,0,2]>(p) z = Transpose<perm=[2,1,0]>(p) }",
    "Exp Transpose Transpose",
)
T.stays(
    "fuse_moves/Transpose",
    "other type",
    f"{X} => {Y} {{ p = Cast<to=10>(x) q = Transpose<perm=[2,0,1]>(p) y = Cast<to=1>(q) }}",
    "Cast Cast",
    odd=True,
)

CONV, IMAGE, MADE = "m = Conv<pads=[1,1,1,1]>(x, w)", "float[2,8,9,11] x", "float[a,b,c,d] y"
IMAGES = {
    "Conv": ("y = Conv<pads=[1,1,1,1]>(m, v)", "Conv Conv"),
    "ConvTranspose": ("p = ConvTranspose<strides=[2,2]>(m, narrow) y = Sigmoid(p)", "Conv ConvTranspose Sigmoid"),
    "Concat": ("y = Concat<axis=1>(m, m)", "Conv Concat"),
    "MaxPool": ("y = MaxPool<kernel_shape=[3,2],strides=[2,1],pads=[1,0,1,1],ceil_mode=1>(m)", "Conv MaxPool"),
    "AveragePool": ("y = AveragePool<kernel_shape=[2,3],pads=[1,1,0,1]>(m)", "Conv AveragePool"),
    "GlobalAveragePool": ("y = GlobalAveragePool(m)", "Conv GlobalAveragePool"),
    "GlobalMaxPool": ("y = GlobalMaxPool(m)", "Conv GlobalMaxPool"),
    "ReduceMean": ("y = ReduceMean(m, axes)", "Conv ReduceMean"), "ReduceMax": ("y = ReduceMax(m, axes)",
    "Conv ReduceMax"),
    "Resize": ('y = Resize<mode="linear">(m, , doubled)', "Conv Resize"),
    "Upsample": ("y = Upsample(m, doubled)", "Conv Upsample"),
}  # fmt: skip
for op, (node, left) in IMAGES.items():
    opset = 9 if op == "Upsample" else 20
    small = op.startswith(("Global", "Reduce"))
    T.fires(
        f"channels_last/{op}",
        f"{IMAGE} => {MADE} {{ {CONV} {node} }}",
        f"Transpose {left}{'' if small else ' Transpose'}",
        opset=opset,
    )
    if op != "Upsample":
        half = f"{CONV} {node}".replace(" w)", " wh)").replace(" v)", " vh)").replace("narrow", "nh")
        T.stays(
            f"channels_last/{op}",
            "other type",
            f"{IMAGE} => {MADE} {{ {half} }}".replace("float", "float16"),
            "Conv ConvTranspose Sigmoid" if op == "ConvTranspose" else f"Conv {op}",
            tolerance={"rtol": 1e-2, "atol": 1e-2},
        )
T.stays(
    "channels_last/Upsample", "other operator", f"{IMAGE} => {MADE} {{ y = Upsample(x, doubled) }}", "Upsample", opset=9
)
T.stays("channels_last/Conv", "other shape", f"float[1,3,9,9] x => {MADE} {{ y = Conv(x, few) }}", "Conv")
T.stays("channels_last/Conv", "not constant", f"{IMAGE}, float[4,8,3,3] f => {MADE} {{ y = Conv(x, f) }}", "Conv")
T.stays(
    "channels_last/ConvTranspose",
    "wrong constant",
    f"{IMAGE} => {MADE} {{ {CONV} y = ConvTranspose<strides=[1,2]>(m, spread) }}",
    "Transpose Conv Transpose ConvTranspose",
)
T.stays(
    "channels_last/ReduceMean",
    "wrong axis",
    f"{IMAGE} => {MADE} {{ {CONV} y = ReduceMean(m, channel) }}",
    "Transpose Conv Transpose ReduceMean",
)
T.stays(
    "channels_last/ReduceMax",
    "wrong axis",
    f"{IMAGE} => {MADE} {{ {CONV} y = ReduceMax(m, channel) }}",
    "Transpose Conv Transpose ReduceMax",
)
