"""Texture operands: what is copied when, and what kernels read through them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.harness import device
from tests.textured import expected, textured_plan
from webrt import wgsl
from webrt.dtypes import F32, I64
from webrt.errors import KernelError, TargetError
from webrt.kernel_layout import kernel_layout
from webrt.plan import TEXTURE_WIDTH
from webrt.runtime.device import Fill
from webrt.runtime.session import Session
from webrt.runtime.textures import Content, Schedule, TextureId, Touch, schedule
from webrt.spans import Spans
from webrt.target import BASE, PRESETS

A, B, C = ("s", 0), ("s", 1), ("s", 2)
LOADERS = ("sampled", "storage")


def content(place: tuple[str, int], texels: int = 8, words: bool = False) -> Content:
    return Content(place, 0, texels, words)


def fills(made: Schedule) -> dict[int, list[tuple[str, int]]]:
    return {step: [c.place for c, _ in found] for step, found in made.fills.items()}


def test_a_content_is_copied_once_until_it_is_written() -> None:
    a = content(A)
    made = schedule(
        [
            Touch(0, [(0, a)], [B], False), Touch(1, [(1, a)], [A], False), Touch(2, [(0, a)], [C], False),
            Touch(3, [(0, a)], [B], False),
        ]
    )  # fmt: skip
    assert fills(made) == {0: [A], 2: [A]}
    assert made.reads[0, 0] == made.reads[1, 1]
    assert made.reads[2, 0] == made.reads[3, 0]


def test_copies_share_a_break_between_passes() -> None:
    a, b, c = content(A), content(B), content(C)
    made = schedule(
        [
            Touch(0, [], [A], False), Touch(1, [], [B], False), Touch(2, [(0, a)], [], False),
            Touch(3, [(0, b)], [], False), Touch(4, [(0, c)], [], False),
        ]
    )  # fmt: skip
    assert fills(made) == {2: [A, B, C]}


def test_a_copy_step_is_a_break_already() -> None:
    made = schedule(
        [
            Touch(0, [], [A], False),
            Touch(1, [], [B], True),
            Touch(7, [], [], False),
            Touch(8, [(0, content(B))], [], False),
        ]
    )
    assert fills(made) == {7: [B]}


def test_textures_are_used_again_after_the_last_read() -> None:
    a, b, w = content(A, 8), content(B, 20), content(C, 4, True)
    made = schedule([Touch(0, [(0, a)], [B], False), Touch(1, [(0, b)], [C], False), Touch(2, [(0, w)], [], False)])
    assert made.sizes == {False: [20], True: [4]}
    assert made.reads == {(0, 0): TextureId(False, 0), (1, 0): TextureId(False, 0), (2, 0): TextureId(True, 0)}


def test_large_contents_choose_their_texture_first() -> None:
    """In order of use the second would take the first's texture, the third one as large."""
    d = ("s", 3)
    made = schedule(
        [
            Touch(0, [], [A], False), Touch(1, [(0, content(A, 8))], [B], False),
            Touch(2, [(0, content(B, 4))], [C], False), Touch(3, [(0, content(C, 8))], [d], False),
            Touch(4, [(0, content(B, 4))], [A], False), Touch(5, [(0, content(d, 20))], [], False),
        ]
    )  # fmt: skip
    assert made.sizes == {False: [20, 4], True: []}
    assert fills(made) == {1: [A], 2: [B], 3: [C], 5: [d]}
    assert made.reads[2, 0] == made.reads[4, 0] != made.reads[3, 0]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=30))
def test_spans_that_overlap_none(wanted: list[tuple[int, int]]) -> None:
    spans, held = Spans(), list[tuple[int, int]]()
    for first, length in wanted:
        last = first + length
        gaps = [max(first - b, a - last) for a, b in held]
        nearest = min(gaps, default=0)
        assert spans.idle(first, last) == (nearest if nearest > 0 or not gaps else None)
        if nearest > 0 or not gaps:
            spans.add(first, last)
            held.append((first, last))


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8", "int32", "uint32"])
def test_kernels_read_through_textures(loader: str, dtype: str) -> None:
    with Session(textured_plan(loader, dtype), device()) as session:
        for n in (1, 4, 5, 4095, 4097, 9000):
            x = np.random.default_rng(n).integers(0, 100, n).astype(dtype)
            y, z = session.run(None, {"x": x})
            want = expected(x)
            np.testing.assert_array_equal(y, want[0])
            np.testing.assert_array_equal(z, want[1])


@pytest.mark.parametrize("loader", LOADERS)
def test_textures_hold_what_is_no_number(loader: str) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e38, 1.2e-38], np.float32)
    x = np.tile(odd, 1000)
    with Session(textured_plan(loader), device()) as session:
        y, z = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, expected(x)[0])
    np.testing.assert_array_equal(z[np.isfinite(z)], expected(x)[1][np.isfinite(z)])
    assert np.isnan(y[::6]).all() and np.isposinf(y[1::6]).all() and np.isneginf(y[2::6]).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 1000, 8191, 8192, 16384, 32768])
def test_a_sampled_texel_is_hit_near_its_middle(rows: int) -> None:
    """The floats of `fours_`: a sampler multiplies by the texture's size what the kernel divided by it."""
    row = np.arange(rows, dtype=np.uint32)
    unit = np.float32(1 / TEXTURE_WIDTH) / np.float32(rows)
    place = ((row * TEXTURE_WIDTH + 5) & np.uint32(2**32 - TEXTURE_WIDTH)) | np.uint32(TEXTURE_WIDTH // 2)
    hit = place.astype(np.float32) * unit * np.float32(rows)
    assert np.abs(hit - (row + 0.5)).max() < 1 / 64


def test_textures_stay_grow_and_go() -> None:
    before = device().counters.buffers, device().counters.bytes
    session = Session(textured_plan("sampled"), device())
    for n, created in ((100, True), (100, False), (50, False), (5000, True), (100, False)):
        session.run(None, {"x": np.zeros(n, np.float32)})
        assert (session.last_run.buffers > 0) == created
        assert session.last_run.copies == 3
    commands = next(iter(session.scope.frame((("n", 100),), []).recorded.values()))
    assert sum(isinstance(c, Fill) for c in commands) == 3
    assert device().counters.bytes - before[1] >= 16 * 1024 * 2
    session.close()
    device().read([])
    assert (device().counters.buffers, device().counters.bytes) == before


def test_a_constant_that_is_only_read_through_textures_has_no_buffer() -> None:
    plan = textured_plan("sampled")
    small = device().target.with_limits(maxTextureDimension2D=8192)
    from webrt.runtime.resolve import Resolver

    found = Resolver(plan, small)
    in_buffers, in_textures = found.constants()
    assert in_buffers == {0}
    assert {c.place for c in in_textures} == {("c", 0)}
    only = Resolver(type(plan)(**{**plan.__dict__, "steps": (*plan.steps[:1], *plan.steps[2:])}), small)
    assert only.constants()[0] == set()


def test_textures_beyond_the_device_leave_it_to_the_next_alternative() -> None:
    from webrt.runtime.resolve import Resolver

    plan = textured_plan("sampled")
    found = Resolver(plan, device().target.with_limits(maxTextureDimension2D=2))
    assert found.choices.alternative(1, _sizes(100)) == 1
    assert found.choices.alternative(1, _sizes(2 * 4096 + 1)) == 2
    with pytest.raises(TargetError, match="no alternative of a dispatch step runs at these sizes"):
        found.choices.alternative(3, _sizes(2 * 4096 + 1))


def _sizes(n: int) -> list[int | None]:
    from webrt.dims import evaluate

    return evaluate(textured_plan("sampled").dims, {"n": n})


def test_what_a_target_meets() -> None:
    lavapipe, swiftshader = PRESETS["lavapipe"], PRESETS["swiftshader"]
    assert not lavapipe.meets({"subgroup_size": 8, "kinds": ["software"], "architectures": ["llvmpipe"]})
    assert "subgroups of 8 are needed" in swiftshader.meets({"subgroup_size": 8})
    assert "kinds software are served" in BASE.meets({"kinds": ["software"]})
    assert "architectures llvmpipe are served" in swiftshader.meets({"architectures": ["llvmpipe"]})


def test_layouts_are_read_from_the_text() -> None:
    kernels = textured_plan("storage", "uint8").kernels
    assert [kernel_layout(k.wgsl).access for k in kernels[:4]] == ["Uw", "FFw", "rrw", "rw"]
    assert kernel_layout(textured_plan("sampled", "uint8").kernels[0].wgsl).textures() == [(0, True)]
    sampled = [kernel_layout(k.wgsl) for k in textured_plan("sampled", "uint8").kernels]
    assert [k.sampler for k in sampled] == [False, True, False, False, True, True]


@pytest.mark.parametrize(
    "bind",
    [
        wgsl.Bind("x", I64, loader="sampled"),
        wgsl.Bind("x", F32, "w", loader="storage"),
        wgsl.Bind("x", F32, loader="tape"),
    ],
)
def test_what_cannot_be_a_texture_is_refused(bind: wgsl.Bind) -> None:
    with pytest.raises(KernelError, match="has no loader"):
        wgsl.build(
            "map",
            name="m",
            binds=[bind, wgsl.Bind("out", F32, "w")],
            params=["n"],
            fns=["fn element(i: u32) -> Out { return 0.0; }"],
        )
