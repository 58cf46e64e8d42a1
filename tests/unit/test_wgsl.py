"""How kernels read their parameters."""

from __future__ import annotations

import re

from webrt import dtypes as T
from webrt import wgsl
from webrt.kernel_layout import kernel_layout

OUT = wgsl.Bind("out", T.F32, "w")


def test_a_parameter_is_read_from_the_block_once_and_only_where_it_is_named() -> None:
    element = "fn element(i: u32) -> Out { return f32(p.twice + p.twice * i); }"
    kernel = wgsl.build("map", name="map", binds=[OUT], params=["n", "twice", "unread"], fns=[element])
    reads = re.findall(r"\bp\.(\w+)", kernel.wgsl)
    assert sorted(reads) == ["n", "twice"]
    assert kernel.wgsl.count("held.twice") == 3
    assert kernel_layout(kernel.wgsl).words == 3


def test_invocations_that_work_together_read_the_block_itself() -> None:
    """A private variable is not uniform, so no barrier may depend on one."""
    element = "fn element(i: u32) -> Out { workgroupBarrier(); return f32(p.twice); }"
    kernel = wgsl.build("map", name="map", binds=[OUT], params=["n", "twice"], fns=[element])
    assert "held" not in kernel.wgsl and "p.twice" in kernel.wgsl
