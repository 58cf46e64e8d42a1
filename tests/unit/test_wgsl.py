"""Kernels from bodies: `webrt.wgsl.build`, which writes equal ones once."""

from __future__ import annotations

from typing import Any

import pytest

from webrt import dtypes as T
from webrt import wgsl
from webrt.errors import KernelError
from webrt.plan import Kernel

BINDS = [wgsl.Bind("out", T.F32, "w")]


def built(**more: Any) -> Kernel:
    element = "fn element(i: u32) -> Out { return 1.0; }"
    given: dict[str, Any] = {"name": "map", "binds": BINDS, "params": ["n"], "fns": [element], **more}
    return wgsl.build("map", **given)


def test_a_kernel_of_another_name_or_requirement_has_the_same_text() -> None:
    one, other = built(), built(name="other", requires={"features": ["subgroups"]})
    assert (one.wgsl, one.hash) == (other.wgsl, other.hash)
    assert (one.name, one.requires) == ("map", {})
    assert (other.name, other.requires) == ("other", {"features": ["subgroups"]})


@pytest.mark.parametrize(
    "more",
    [
        {"binds": [wgsl.Bind("out", T.I32, "w")]},
        {"binds": [wgsl.Bind("x", T.F32), *BINDS]},
        {"params": ["n", "more"]},
        {"fns": ["fn element(i: u32) -> Out { return 2.0; }"]},
        {"use": ["nan"]},
    ],
    ids=["type", "binding", "parameter", "function", "library"],
)
def test_what_differs_is_in_the_text(more: dict[str, Any]) -> None:
    assert built().wgsl != built(**more).wgsl and built().hash != built(**more).hash


def test_equal_numbers_of_other_types_are_other_constants() -> None:
    body = wgsl.read_header("attention_values").declared
    binds = [wgsl.Bind(b.split(":")[0], T.F32, "w" if ":" in b else "r") for b in body["bindings"]]
    texts = [
        wgsl.build("attention_values", name="t", binds=binds, params=body["params"], consts={"EMPTY": x},
                   fns=["fn v4() {}", "fn store4() {}"]).wgsl
        for x in (1, True, 1.0)
    ]  # fmt: skip
    assert [next(line for line in text.splitlines() if "EMPTY =" in line) for text in texts] == [
        "const EMPTY = 1u;", "const EMPTY = true;", "const EMPTY = 1.0f;",
    ]  # fmt: skip


def test_what_a_body_does_not_declare_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(KernelError, match="consts missing"):
            built(consts={"EXTRA": 1})
