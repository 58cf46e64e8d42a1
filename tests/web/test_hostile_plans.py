"""Plans whose author wishes ill, natively and in the player: names, sizes, headers, kernels."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import struct
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.harness import device
from tests.web.driver import Player
from tests.web.test_player import compiled, native, same, values
from webrt import checksum, planfile
from webrt.errors import DeviceError, InputError, KernelError, PlanError, WebrtError
from webrt.plan import Plan
from webrt.planfile import dump, load
from webrt.runtime.session import Session
from webrt.runtime.sizes import size_text
from webrt.validate import validate

pytestmark = pytest.mark.xdist_group("chromium")

CHAIN = "agraph (float[n, 4] x) => (float[n, 4] y) { a = Relu(x)  y = Mul(a, x) }"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled(CHAIN)


def test_names_that_every_object_has(player: Player) -> None:
    made = compiled(
        "agraph (float[__proto__, toString] __proto__, float[__proto__, toString] constructor)"
        " => (float[__proto__, toString] hasOwnProperty, float[__proto__, toString] valueOf)"
        " { hasOwnProperty = Add(__proto__, constructor)  valueOf = Neg(constructor) }"
    )
    feeds = {"__proto__": values(2, 3), "constructor": values(2, 3, seed=1)}
    session = player.load(made)
    assert session.inputs[0]["shape"] == ["__proto__", "toString"]
    same(session.run(feeds), native(made, feeds))
    some = session.run(feeds, location={"hasOwnProperty": "cpu"})
    assert list(some) == ["hasOwnProperty", "valueOf"]
    with pytest.raises(InputError, match="no value for '__proto__'"):
        session.run({"constructor": feeds["constructor"]})
    session.release()


def test_sizes_are_told_in_few_words(player: Player, plan: Plan) -> None:
    """As both sides tell them."""
    base = len(plan.dims)
    dims = [*plan.dims, *(["add", [base + k - 1 if k else 0], [base + k - 1 if k else 0]] for k in range(300))]
    wide = dataclasses.replace(plan.inputs[0], shape=(plan.inputs[0].shape[0], (len(dims) - 1,)))  # type: ignore[index]
    made = dataclasses.replace(plan, dims=dims, inputs=(wide,))
    validate(load(dump(made)))
    session = player.load(made)
    assert session.inputs[0]["shape"][1] == size_text(dims, (len(dims) - 1,))
    assert len(session.inputs[0]["shape"][1]) < 1000
    with pytest.raises(InputError, match="overflows"):
        session.run({"x": values(2, 4)})
    session.release()


def test_a_check_that_shares_its_parts(player: Player, plan: Plan) -> None:
    base = len(plan.dims)
    dims = [*plan.dims, ["eq", [0], 7], *(["max", [base + k], [base + k]] for k in range(300))]
    made = dataclasses.replace(plan, dims=dims, checks=(((len(dims) - 1,), "n is 7"),))
    session = player.load(made)
    with pytest.raises(InputError, match="n is 7"):
        session.run({"x": values(2, 4)})
    session.release()
    with Session(made, device()) as own, pytest.raises(InputError, match="n is 7"):
        own.run(None, {"x": values(2, 4)})


def header(text: str, more: str = "", encoding: str = "utf-8", start: str = "") -> bytes:
    """A file of this plan without constants; `more` stands in its header."""
    fields = {"format": "webrt", "crc32": checksum.BLANK, "webrt": text}
    told = f'{start}{{"__metadata__":{json.dumps(fields, separators=(",", ":"))}{more}}}'.encode(
        encoding, "surrogatepass"
    )
    return checksum.seal(struct.pack("<Q", len(told)) + told)


SIZE = '"params_size":'
FILES: dict[str, tuple[Callable[[str], bytes], bool]] = {
    "as it is": (lambda t: header(t), True),
    "a number that is none": (lambda t: header(t, ',"a":NaN'), False),
    "an infinite number": (lambda t: header(t, ',"a":-Infinity'), False),
    "a number that becomes infinite": (lambda t: header(t, ',"a":[1e400,-0,9007199254740993]'), True),
    "thousands of digits": (lambda t: header(t, f',"a":{"9" * 5000}'), True),
    "thousands of digits in the plan": (lambda t: header(t.replace('"meta":{', f'"meta":{{"a":{"9" * 5000},')), True),
    "thousands of digits where a size is": (lambda t: header(t.replace(SIZE, f'{SIZE}{"9" * 5000}')), False),
    "a size of minus zero": (lambda t: header(re.sub(r'"params_offset":0', '"params_offset":-0', t)), True),
    "2**53 where a size is": (lambda t: header(re.sub(rf"{SIZE}\d+", f"{SIZE}{2**53}", t)), False),
    "half a letter": (lambda t: header(t, ',"a":"\ud800"'), False),
    "a byte order mark": (lambda t: header(t, start="\ufeff"), False),
    "UTF-16": (lambda t: header(t, encoding="utf-16"), False),
    "nested deep": (lambda t: header(t.replace('"meta":{', f'"meta":{{"a":{"[" * 3000}{"]" * 3000},')), False),
    "a plan of other names": (lambda t: header(t.replace('{"version"', '{"__proto__":{},"version"')), False),
    "values of other names": (lambda t: header(t.replace('"values":{', '"values":{"__proto__":null,')), False),
    "a prototype in the report": (lambda t: header(t.replace('"meta":{', '"meta":{"__proto__":{"a":1},')), True),
}  # fmt: skip


def test_headers_are_read_alike(player: Player, plan: Plan) -> None:
    plain = dataclasses.replace(plan, constants=(), steps=plan.steps)
    text = json.dumps(plain.to_json(), separators=(",", ":"))
    files = {name: make(text) for name, (make, _) in FILES.items()}
    there = player.call("verdicts", files=[base64.b64encode(f).decode() for f in files.values()])
    wrong = []
    for (name, file), told in zip(files.items(), there, strict=True):
        try:
            validate(load(file))
            here = ""
        except PlanError as e:
            here = f"PlanError: {e}"
        good = FILES[name][1]
        if bool(here) == good or bool(told) == good or (told and not told.startswith("PlanError")):
            wrong.append((name, here, told))
    assert not wrong


def _hidden(wgsl: str) -> str:
    """The first binding as a comment; what is really bound is written."""
    line = next(x for x in wgsl.splitlines() if x.startswith("@group(0) @binding(1)"))
    real = line.replace("@group(0) @binding(1)", "@binding(1) @group(0)").replace(
        "storage, read>", "storage, read_write>"
    )
    return wgsl.replace(line, f"// {line}\n{real}")


def _with(declared: str, statement: str) -> Callable[[str], str]:
    """A declaration before the entry point, and a statement in it."""
    return lambda w: w.replace("@compute", f"{declared}\n@compute", 1).replace(
        "  let first", f"  {statement}\n  let first"
    )


KERNELS: dict[str, Callable[[str], str]] = {
    "a binding in a comment": _hidden,
    "a binding of another group": _with(
        "@group(1) @binding(0) var<storage, read> q: array<u32>;", "if (q[0] == 1u) { return; }"
    ),
    "a second binding in another spelling": _with(
        "@binding(9) @group(0) var<storage, read_write> q: array<u32>;", "q[0] = 1u;"
    ),
    "too much workgroup memory": _with("var<workgroup> q: array<u32, 100000000>;", "q[local] = 1u;"),
    "too many invocations": lambda w: w.replace("@workgroup_size(64)", "@workgroup_size(64, 64, 64)"),
    "two entry points": lambda w: w + "\n@compute @workgroup_size(1) fn main() {}",
    "no entry point": lambda w: w.replace("fn main", "fn niam"),
    "a text that ends early": lambda w: w + "\x00",
}
NOT_NATIVELY = {"too much workgroup memory"}
"""wgpu hands it to the driver: docs/security.md says so."""


@pytest.mark.parametrize("what", KERNELS)
def test_kernels_that_are_not_what_they_seem(player: Player, plan: Plan, what: str) -> None:
    """The device refuses them, and says which; nothing was written."""
    kernels = tuple(dataclasses.replace(k, wgsl=KERNELS[what](k.wgsl)) for k in plan.kernels)
    assert all(a.wgsl != b.wgsl for a, b in zip(plan.kernels, kernels, strict=True))
    made = dataclasses.replace(plan, kernels=kernels)
    x = values(2, 4)
    if what not in NOT_NATIVELY:
        with pytest.raises((KernelError, DeviceError, PlanError)), Session(made, device()) as session:
            session.run(None, {"x": x})
    with pytest.raises((KernelError, DeviceError, PlanError)):
        player.load(made).run({"x": x})
    np.testing.assert_allclose(native(plan, {"x": x})["y"], np.maximum(x, 0) * x, rtol=1e-6)


def test_every_error_of_a_damaged_file_is_one_of_ours(plan: Plan) -> None:
    whole = planfile.dump(plan)
    for at in range(0, len(whole), 97):
        for data in (whole[:at], whole[:at] + b"\x00" * 9 + whole[at:]):
            with pytest.raises(WebrtError):
                validate(load(data))
