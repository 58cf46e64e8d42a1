"""Concat, Split and Slice without copies: where tensors are parts of a slot and where not, and that nothing changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest

from tests.kernels.harness import device, oracle, plain_device
from tests.passes.harness import feeds_of, parse
from tests.tolerance import close
from webrt import plan as P
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import TargetError
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor
from webrt.target import BASE

ALONE = ("fuse_elementwise", "fuse_epilogues", "fuse_moves")
CONSTANTS = {
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "four": np.array([4]), "axis": np.array([1]),
    "k": np.float32(np.random.default_rng(1).standard_normal((64, 64)) / 8), "index": np.array(1),
}  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> Iterator[NativeDevice]:
    with plain_device() as made:
        yield made


def run(model: onnx.ModelProto, on: NativeDevice, sizes: Sequence[int] = (3,)) -> Plan:
    """The plan with parts, whose results are those of the plan without, from arrays and from device tensors."""
    plan = compile_model(model, CompileOptions(target=on.target, disabled=ALONE))
    copying = compile_model(model, CompileOptions(target=on.target, disabled=(*ALONE, "parts")))
    with Session(plan, on, CpuProvider()) as a, Session(copying, on, CpuProvider()) as b:
        for size in sizes:
            feeds = feeds_of(model, size)
            for x, y, want in zip(a.run(None, feeds), b.run(None, feeds), oracle(model, feeds), strict=True):
                np.testing.assert_array_equal(x, y)
                close(x, want)
            given = {k: Tensor.from_numpy(v, on) for k, v in feeds.items()}
            for x, y in zip(a.run(None, given), a.run(None, feeds), strict=True):
                np.testing.assert_array_equal(x, y)
            for name, tensor in given.items():
                np.testing.assert_array_equal(tensor.numpy(), feeds[name])
                tensor.close()
    return plan


def made(text: str, inputs: str = "float[4,64] x", outputs: str = "float[a,b] y", opset: int = 20) -> onnx.ModelProto:
    used = {
        k: v for k, v in CONSTANTS.items() if k in text.replace("(", " ").replace(",", " ").replace(")", " ").split()
    }
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {text} }}", used, opset)


def copies(plan: Plan) -> int:
    return sum(isinstance(s, P.Copy) for s in plan.steps)


def offsets(plan: Plan) -> list[list[P.DimRef]]:
    return [[offset for _, _, offset, _ in s.bindings] for s in plan.steps if isinstance(s, P.Dispatch)]


def line(plan: Plan, op: str) -> tuple[str, str]:
    return next((p.how, p.reason) for p in plan.placement if p.op == op)


JOIN = "a = Softmax(x) b = Sin(z) y = Concat<axis=0>(a, b)"
CUT = "s = Softmax(x) a, b = Split<axis=0, num_outputs=2>(s) y = Softmax(a) z = Softmax(b)"
TWO = "float[a,b] y, float[c,d] z"


def test_inputs_of_a_concat_are_written_into_it(plain: NativeDevice) -> None:
    plan = run(made(JOIN, "float[4,64] x, float[3,64] z"), plain)
    assert (copies(plan), offsets(plan)) == (0, [[0, 0], [0, 1024]])
    assert line(plan, "Concat") == ("alias", "its inputs are written where it has them")
    assert (
        len({p for s in plan.steps if isinstance(s, P.Dispatch) for p, access, *_ in s.bindings if access == "w"}) == 1
    )


def test_parts_of_a_split_are_read_in_place(plain: NativeDevice) -> None:
    plan = run(made(CUT, outputs=TWO), plain)
    assert (copies(plan), offsets(plan)) == (0, [[0, 0], [0, 0], [512, 0]])
    assert line(plan, "Split") == ("alias", "a view of 's'")


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("a = Slice(x, one, four, zero) y = Softmax(a)", "float[4,64] x", "float[a,b] y"),
        ("a = Gather<axis=0>(x, index) y = Softmax(a)", "float[4,64] x", "float[a] y"),
        ("a = Slice(x, one, two, axis) y = Softmax(a)", "float[1,4,8,8] x", "float[a,b,c,d] y"),
        (f"{JOIN} c = MatMul(y, k) w = Softmax(c)", "float[n,64] x, float[m,64] z", "float[a,b] w"),
        (JOIN, "float[n,64] x, float[n,64] z", "float[a,b] y"),
        ("a, b = Split<axis=0, num_outputs=2>(x) y = Softmax(a) z = Softmax(b)", "float[2,n,64] x",
         "float[a,b,c] y, float[d,e,f] z"),
        ("s = Softmax(x) a = Gather<axis=0>(s, index) y = Softmax(a)", "float[2,n,64] x", "float[a,b] y"),
        (f"{CUT} w = Concat<axis=0>(y, z)", "float[4,64] x", "float[a,b] w"),
        (f"{JOIN} i = Slice(y, zero, four, zero) w = Softmax<axis=0>(i)", "float[4,64] x, float[4,64] z",
         "float[a,b] w"),
        (f"{JOIN} u = Softmax<axis=0>(y) w = Concat<axis=0>(u, y)", "float[4,64] x, float[4,64] z", "float[a,b] w"),
        ("p = Softmax(x) a = Sin(p) b = Cos(z) y = Concat<axis=1>(a, b)",
         "float[1,8,16,16] x, float[1,2,16,16] z", "float[a,b,c,d] y"),
        ("a = Softmax(x) r = Flatten<axis=2>(a) y = Concat<axis=0>(r, z)", "float[2,2,64] x, float[2,64] z",
         "float[a,b] y"),
    ],
    ids=["slice", "gather", "channels", "free", "free-output", "free-input", "free-row", "split-and-join",
         "join-and-slice", "join-twice", "images", "reshaped"],
)  # fmt: skip
def test_fewer_copies(text: str, inputs: str, outputs: str, plain: NativeDevice) -> None:
    model = made(text, inputs, outputs)
    free = "n," in inputs
    plan = run(model, plain, (3, 7) if free else (3,))
    without = compile_model(model, CompileOptions(target=plain.target, disabled=(*ALONE, "parts")))
    assert copies(plan) < copies(without)
    run(model, device())


@pytest.mark.parametrize(
    ("text", "inputs", "outputs", "kept"),
    [
        (JOIN, "float[4,60] x, float[4,60] z", "float[a,b] y", 1),
        (JOIN, "float[n,60] x, float[m,60] z", "float[a,b] y", 1),
        (f"{JOIN} w = Softmax(y)", "float[n,64] x, float[m,64] z", "float[a,b] w", 1),
        (JOIN, "float[4,64] x, float[4,64] z", "float[a,b] y, float[c,d] b", 1),
        ("y = Concat<axis=0>(x, z)", "float[4,64] x, float[4,64] z", "float[a,b] y", 2),
        ("a = Softmax(x) y = Concat<axis=0>(a, a)", "float[4,64] x", "float[a,b] y", 2),
        ("a = Softmax(x) b = Softmax<axis=0>(a) y = Concat<axis=0>(a, b)", "float[4,64] x", "float[a,b] y", 1),
        ("a = Slice(x, one, two, zero) y = Softmax(a)", "float[4,60] x", "float[a,b] y", 1),
        ("y = Slice(x, one, two, zero)", "float[4,64] x", "float[a,b] y", 1),
        ("a = Slice(x, one, two, zero) q = SequenceConstruct(a) y = ConcatFromSequence<axis=0>(q)", "float[4,64] x",
         "float[a,b] y", 1),
    ],
    ids=["misaligned", "misaligned-free", "free-and-maybe-empty", "an-output-in-the-middle", "inputs", "twice",
         "a-reader-that-writes-another-part", "a-slice-between-alignments", "an-output", "read-by-the-host"],
)  # fmt: skip
def test_copies_stay(text: str, inputs: str, outputs: str, kept: int, plain: NativeDevice) -> None:
    plan = run(made(text, inputs, outputs), plain, (3, 1) if "n," in inputs else (3,))
    assert copies(plan) == kept


@pytest.mark.parametrize("dtype", ["float16", "int64", "uint8"])
def test_other_types(dtype: str, plain: NativeDevice) -> None:
    code = {"float16": 10, "int64": 7, "uint8": 2}[dtype]
    text = f"m = Mul(x, x) a = Cast<to={code}>(m) q = Mul(z, z) b = Cast<to={code}>(q) c = Concat<axis=0>(a, b)"
    model = made(f"{text} y = Max(c, c)", "float[4,64] x, float[4,64] z", f"{dtype}[a,b] y")
    assert copies(run(model, plain)) == 0


def test_an_axis_that_is_not_contiguous_is_one_kernel(plain: NativeDevice) -> None:
    plan = run(made(JOIN.replace("axis=0", "axis=1"), "float[4,64] x, float[4,64] z"), plain)
    assert line(plan, "Concat") == ("kernel", "")


def test_channels_last_images_join_along_rows(plain: NativeDevice) -> None:
    """Channels of one image lie apart there, rows do not."""
    draw = np.random.default_rng(7)
    shapes = {"u": (8, 8, 3, 3), "v": (8, 8, 3, 3), "w": (4, 8, 1, 1), "t": (4, 16, 1, 1)}
    weights = {k: draw.standard_normal(shape).astype(np.float32) for k, shape in shapes.items()}
    for axis, how, last in ((2, "alias", "w"), (1, "kernel", "t")):
        chains = "p = Conv(x, u) a = Conv(p, v) q = Conv(z, v) b = Conv(q, u)"
        text = f"{chains} c = Concat<axis={axis}>(a, b) y = Conv(c, {last})"
        io = "float[1,8,12,12] x, float[1,8,12,12] z"
        used = {k: w for k, w in weights.items() if k in ("u", "v", last)}
        model = parse(f"agraph ({io}) => (float[a,b,c,d] y) {{ {text} }}", used)
        assert line(run(model, plain), "Concat")[0] == how


def test_more_bytes_at_one_time_are_not_worth_it(plain: NativeDevice) -> None:
    """A slice of a large tensor, kept to the end, would keep all of it."""
    model = made(
        "s = Softmax(x) a = Slice(s, zero, one, zero) m = Softmax<axis=0>(s) t = Softmax(m) u = Softmax<axis=0>(t) "
        "v = Softmax(u) r = MatMul(v, a) y = Softmax(r)".replace("MatMul(v, a)", "Mul(v, a)"), "float[64,64] x",
    )  # fmt: skip
    plan = run(model, plain)
    assert copies(plan) == 1
    without = compile_model(model, CompileOptions(target=plain.target, disabled=(*ALONE, "parts")))
    assert plan.meta["live_bytes"] == without.meta["live_bytes"]


def test_a_whole_above_the_binding_limit() -> None:
    """Its parts are bound with their sizes, free ones too; what is bound whole is smaller."""
    small = BASE.with_limits(maxStorageBufferBindingSize=2048)
    model = made("a = Slice(x, zero, four, zero) y = Softmax(a)", "float[16,64] x")
    plan = compile_model(model, CompileOptions(target=small, disabled=ALONE))
    assert copies(plan) == 0
    assert [b[2:] for s in plan.steps if isinstance(s, P.Dispatch) for b in s.bindings] == [(0, 1024), (0, 0)]


def test_the_limit_holds_for_parts_of_free_size() -> None:
    low = device().target.with_limits(maxStorageBufferBindingSize=1 << 16)
    model = made("a = Gather<axis=0>(x, index) y = ReduceSum<keepdims=0>(a, axis)", "float[2,n,64] x", "float[a] y")
    plan = compile_model(model, CompileOptions(target=low, disabled=ALONE))
    assert copies(plan) == 0
    with Session(plan, device()) as session:
        x = feeds_of(model, 256)["x"]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], oracle(model, {"x": x})[0], rtol=1e-4, atol=1e-4)
        with pytest.raises(TargetError, match=r"binds 65792 bytes of a tensor at these sizes.*BindingSize 65536"):
            session.run(None, {"x": feeds_of(model, 257)["x"]})


def graph(seed: int, free: bool) -> onnx.ModelProto:
    """Concats, splits, slices and kernels of several rows of 64 numbers each, any of which may be read much later."""
    draw = random.Random(seed)
    values: dict[str, int] = {"x": 4, "z": 4 if free else 8}
    lines = []
    for k in range(draw.randint(10, 18)):
        name, out = draw.choice([*values][-5:]), f"v{k}"
        rows = values[name]
        kind = draw.choice(["join", "join", "cut", "slice", "soft", "soft", "wave", "sum"])
        alike = [v for v, r in values.items() if r == rows and v != name]
        if kind == "join" and rows < 32:
            others = draw.choices([*values][-6:], k=draw.randint(1, 2))
            lines.append(f"{out} = Concat<axis=0>({', '.join([name, *others])})")
            values[out] = rows + sum(values[v] for v in others)
        elif kind == "cut" and rows % 2 == 0 and not (free and rows % 4):
            lines.append(f"{out}, {out}b = Split<axis=0, num_outputs=2>({name})")
            values |= {out: rows // 2, f"{out}b": rows // 2}
        elif kind == "slice" and rows > 4 and not free:
            lines.append(f"{out} = Slice({name}, two, four, zero)")
            values[out] = 2
        elif kind == "sum" and alike:
            lines.append(f"{out} = Add({name}, {draw.choice(alike)})")
            values[out] = rows
        else:
            lines.append(f"{out} = {'Sin' if kind == 'wave' else f'Softmax<axis={draw.randint(0, 1)}>'}({name})")
            values[out] = rows
    ends = [*values][-1], [*values][-4]
    lines += [f"y = Neg({ends[0]})", f"u = Softmax({ends[1]})"]
    rows_of = ("n", "n") if free else ("4", "8")
    inputs = ", ".join(f"float[{r},64] {v}" for v, r in zip("xz", rows_of, strict=True))
    return made(" ".join(lines), inputs, "float[a,b] y, float[c,d] u")


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.long) for s in range(2, 60))])
def test_nothing_changes(seed: int, free: bool, plain: NativeDevice) -> None:
    run(graph(seed, free), device() if seed % 2 else plain, (64, 16, 128) if free else (3,))
