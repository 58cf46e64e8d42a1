"""Plan cases: a `.webrt` file with parts of its JSON, its size program, its WGSL or its table of constants changed."""

from __future__ import annotations

import copy
import json
import struct
from functools import lru_cache
from random import Random
from typing import Any

from tests.fuzz.noise import noisy
from tests.fuzz.seeds import GRAPHS, text_model
from tests.plans import ODD, TABLE
from webrt import checksum, planfile, planjson
from webrt import plan as P
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.plan import Plan
from webrt.runtime.sizes import Sizes

INTS = (-1, 0, 1, 2, 3, 4, 8, 15, 16, 17, 63, 64, 255, 256, 257, 65535, 65536, 2**20, 2**28, 2**31, 2**32, 2**53 - 1,
        2**53, 2**63, 10**30, -16, -256, -(2**53))  # fmt: skip
TEXTS = ("", "x", "y", "s", "c", "r", "w", "n", "in:x[0]", "__proto__", "constructor", "toString", "a'b", "é", "😀",
         "\ud800", "float32", "float64", "string", "int4", "bool", "dispatch", "copy", "host", "var", "add", "floordiv",
         "select", "scale_f32", "A===", "AAAA", "@group(0) @binding(1) var<storage, read> z: array<f32>;")  # fmt: skip
_DEEP = "forty lists, one in the other"
_PLANS = ("chain", "shapes", "data_sizes", "constants", "quantized", "resize", "branches")


@lru_cache(maxsize=1)
def bases() -> tuple[tuple[dict[str, Any], bytes], ...]:
    """JSON and data section of the seed plans."""
    table = planjson.plan_from_json(json.dumps(TABLE["base"]))
    seeds = [Plan(**{**table.__dict__, "data": lambda i: bytes(table.constants[i].nbytes)})]
    for name in _PLANS:
        options = CompileOptions(known_inputs={"c": True} if name == "branches" else {})
        seeds.append(compile_model(text_model(GRAPHS[name]), options))
    out = []
    for seed in seeds:
        made = planfile.dump(seed)
        length = struct.unpack("<Q", made[:8])[0]
        header = json.loads(made[8 : 8 + length])
        out.append((json.loads(header["__metadata__"]["webrt"]), made[8 + length :]))
    return tuple(out)


def make(random: Random) -> bytes:
    """The bytes of a `.webrt` file."""
    plan, data = random.choice(bases())
    if random.random() < 0.1:
        return noisy(random, packed(plan, data))
    plan = copy.deepcopy(plan)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        _mutate(random, plan)
    if random.random() < 0.1:
        data = data[: random.randrange(len(data) + 1)]
    return packed(plan, data)


def packed(plan: Any, data: bytes) -> bytes:
    """A file with this JSON and this data section, and a right checksum of its header."""
    text = json.dumps(plan).replace(json.dumps(_DEEP), "[" * 40 + "0" + "]" * 40)
    metadata = {"format": "webrt", "crc32": checksum.BLANK, "webrt": text}
    header = json.dumps({"__metadata__": metadata}, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 16)
    return checksum.seal(struct.pack("<Q", len(header)) + header) + data


def try_sizes(plan: Plan, random: Random) -> None:
    """Binds the inputs' sizes as a run does, to small, huge and odd ones, and evaluates the program."""
    sizes = Sizes(plan)
    for info in plan.inputs:
        shape = [random.choice((0, 1, 2, 4, 64, 2**31, 2**52)) for _ in info.shape or ()]
        sizes.bind(info, shape, ValueError_)
        sizes.bind_elements(info, [random.choice((-5, 0, 1, 2**52))] * info.elements, ValueError_)
    sizes.settle()
    for info in (*plan.inputs, *plan.outputs):
        sizes.shape(info)


class ValueError_(P.PlanError):
    """A shape that is not the declared one."""


def _mutate(random: Random, plan: dict[str, Any]) -> None:
    at: Any = plan
    while at:
        key = random.choice(list(at) if isinstance(at, dict) else range(len(at)))
        inner = at[key]
        if not isinstance(inner, (dict, list)) or not inner or random.random() < 0.12:
            break
        at = inner
    what = random.random()
    if not at:
        plan["dims"] = _other(random, 0)
    elif what < 0.08:
        del at[key]
    elif what < 0.16 and isinstance(at, list):
        at.insert(key, copy.deepcopy(inner))
    elif what < 0.2 and isinstance(at, list):
        at[key], at[0] = at[0], at[key]
    elif what < 0.23 and isinstance(at, dict):
        at[random.choice((*TEXTS, *at))] = copy.deepcopy(inner)
    elif what < 0.24:
        at[key] = _DEEP
    else:
        at[key] = _other(random, inner)


def _other(random: Random, old: Any) -> Any:
    """Another value, mostly of the same kind."""
    if random.random() < 0.2:
        return copy.deepcopy(random.choice(ODD))
    if isinstance(old, bool) or old is None:
        return random.choice((True, False, None, 0, [], {}))
    if isinstance(old, int):
        return random.choice((*INTS, old + 1, old - 1, old * 2, float(old), [old], -old))
    if isinstance(old, str):
        return _text(random, old)
    if isinstance(old, list):
        return random.choice(([], old * 2, [random.choice(INTS)], [old], old[::-1]))
    return random.choice(({}, [], list(old.values()) if isinstance(old, dict) else 0.5, old))


def _text(random: Random, old: str) -> str:
    if len(old) < 20 or random.random() < 0.3:
        return random.choice(TEXTS)
    at = random.randrange(len(old))
    length = random.choice((1, 1, 4, 40))
    return random.choice((old[:at] + old[at + length :], old[:at] + old[at : at + length] + old[at:],
                          old[:at] + random.choice(TEXTS) + old[at:], old * random.choice((2, 50))))  # fmt: skip
