"""What a plan must satisfy before a byte of it reaches a device.

web/player.js has the twin, with the same texts; tests/unit/bad_plans.json is the table that both are tested on. What
depends on sizes (binding offsets, group counts, copies within their buffers) is checked by the executors at each run.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from webrt import dtypes
from webrt.bounds import told
from webrt.dims import LIMIT, DimRef, check_program, variables_of
from webrt.errors import PlanError, TargetError
from webrt.plan import (
    ALIGN,
    Constant,
    Copy,
    Dispatch,
    HostStep,
    Kernel,
    Place,
    PlacedNode,
    Plan,
    Read,
    Slot,
    ValueInfo,
    Work,
)
from webrt.subplans import Branch, Loop, is_well_formed, operands
from webrt.target import DEFAULT_LIMITS, REQUIREMENTS, Target

OFFSET_ALIGN = 256
MAX_GROUPS = 65535
MAX_RANK = 64
MAX_ELEMENTS = 1 << 20
MAX_WGSL = 1 << 20
MAX_KERNELS = 20_000
MAX_TABLE = 1_000_000
MAX_PARAMS = 1 << 28
MAX_BLOCK = 16384
MAX_PROTO = 1 << 26
MAX_DEPTH = 32
MAX_NESTING = 8
MAX_TUNINGS = 64

_BINDING = re.compile(
    r"@group\(0\) @binding\((\d+)\) var(?:<storage, (read|read_write)>|"
    r" \w+: (texture_2d<(?:f32|u32)>|texture_storage_2d<rgba32(?:float|uint), read>);)",
    re.ASCII,
)
_ACCESS = {
    "read": "r", "read_write": "w", "texture_2d<f32>": "f", "texture_2d<u32>": "u",
    "texture_storage_2d<rgba32float, read>": "F", "texture_storage_2d<rgba32uint, read>": "U",
}  # fmt: skip
_TEXTURES = str.maketrans("fuFU", "rrrr")
_UNIFORM = re.compile(r"@group\(0\) @binding\(0\) var<uniform> p: Params;")
_PARAMS = "struct Params {"


@dataclass(frozen=True)
class KernelLayout:
    """What a kernel's text declares: u32 words of its parameter block, and a letter for each of @binding(1) …

    "r" and "w" are storage buffers, "f" and "u" sampled textures of rgba32float and rgba32uint, "F" and "U" storage
    textures of these formats."""

    words: int
    access: str

    @property
    def buffers(self) -> str:
        """The access with every binding as a buffer."""
        return self.access.translate(_TEXTURES)

    def textures(self) -> list[tuple[int, bool]]:
        """(binding from 0, whether its texels are u32) of each texture."""
        return [(i, a in "uU") for i, a in enumerate(self.access) if a in "fuFU"]


@told(PlanError, "checking the plan")
def validate(plan: Plan, target: Target | None = None) -> None:
    """Raises PlanError naming the rule that `plan` breaks; `target` replaces the one that the plan was made for."""
    check_program(plan.dims)
    _need(len(plan.kernels) <= MAX_KERNELS, "kernels", "more entries than allowed")
    for i, kernel in enumerate(plan.kernels):
        _check_kernel(kernel, f"kernel {i}")
    _check_constants(plan.constants)
    _check_extras(plan)
    _check_steps(plan, target or _target(plan), "", 0)


def _check_steps(plan: Plan, aim: Target, inside: str, depth: int) -> None:
    """The tables and steps of a plan, or of a sub-plan at `depth`; `inside` says of which step."""
    check_program(plan.dims)
    _check_tables(plan, inside)
    for i, (size, message) in enumerate(plan.checks):
        _need(_is_ref(plan, size) and isinstance(message, str), f"{inside}check {i}", "not a size and a message")
    for i, slot in enumerate(plan.slots):
        _check_slot(plan, slot, f"{inside}slot {i}")
    _check_values(plan, inside)
    made, variables = {v.name for v in plan.inputs}, set(variables_of(plan.dims))
    for i, step in enumerate(plan.steps):
        where = f"{inside}step {i}"
        _need(_is_int(step.node) and -1 <= step.node < len(plan.placement), where, "its node is not in the placement")
        if isinstance(step, Dispatch):
            _check_dispatch(plan, step, aim, where)
        elif isinstance(step, Copy):
            _check_copy(plan, step, where)
        elif isinstance(step, Read):
            _check_read(plan, step, variables, where)
        elif isinstance(step, (Branch, Loop)):
            _check_control(plan, step, made, where)
            _need(depth < MAX_NESTING, where, "steps are nested deeper than allowed")
            for k, body in enumerate(step.bodies):
                _check_steps(plan.within(body), aim, f"{where}, body {k}, ", depth + 1)
        else:
            _check_host(plan, step, made, where)
    for v in plan.outputs:
        _need(_has_source(v, made), f"{inside}output {v.name!r}", "nothing makes it")


@lru_cache(maxsize=4096)
def kernel_layout(wgsl: str) -> KernelLayout:
    """Read from the declarations that `wgsl.build` writes; raises PlanError where they are not in order."""
    found = _BINDING.findall(wgsl)
    if [n for n, *_ in found] != [str(i + 1) for i in range(len(found))]:
        raise PlanError("kernel: its storage bindings are not numbered from 1")
    start = wgsl.find(_PARAMS)
    end = wgsl.find("}", start + len(_PARAMS)) if start >= 0 else -1
    words = wgsl.count(":", start, end) if end >= 0 else 0
    if bool(_UNIFORM.search(wgsl)) != (words > 0):
        raise PlanError("kernel: its parameter block is not declared as one")
    return KernelLayout(words, "".join(_ACCESS[access or texture] for _, access, texture in found))


def _check_tables(plan: Plan, inside: str) -> None:
    for key in ("inputs", "outputs", "values", "slots", "constants", "steps", "checks", "placement"):
        _need(len(getattr(plan, key)) <= MAX_TABLE, inside + key, "more entries than allowed")
    size = plan.params_size
    _need(_is_int(size) and 0 <= size <= MAX_PARAMS, f"{inside}params_size", "not a size, or larger than allowed")


def _check_extras(plan: Plan) -> None:
    for i, p in enumerate(plan.placement):
        _need(_is_line(p), f"placement {i}", "not a line of the report")
    _need(len(plan.work) in (0, len(plan.steps)), "work", "not an entry for each step")
    for i, w in enumerate(plan.work):
        _need(_is_work(plan, w), f"work {i}", "not tensors, operators and products")
    _need(_depth(plan.meta) <= MAX_DEPTH, "meta", "nested deeper than allowed")
    _need(len(plan.tuning) <= MAX_TUNINGS, "tuning", "more entries than allowed")
    _need(_depth(plan.tuning) <= MAX_DEPTH, "tuning", "nested deeper than allowed")
    for i, t in enumerate(plan.tuning):
        _need(
            isinstance(t, Mapping) and isinstance(t.get("adapter"), Mapping), f"tuning {i}", "not a table of an adapter"
        )


def _is_line(p: PlacedNode) -> bool:
    crossing = p.bytes is None or (_is_int(p.bytes) and p.bytes >= 0)
    return crossing and all(isinstance(x, str) for x in (p.node, p.op, p.provider, p.how, p.reason))


def _is_work(plan: Plan, w: Work) -> bool:
    lists = all(isinstance(x, tuple) for x in (w.tensors, w.ops, w.flop))
    return (
        lists
        and all(isinstance(op, str) for op in w.ops)
        and all(_is_sizes(plan, product, MAX_RANK) for product in w.flop)
        and all(
            isinstance(t, tuple) and len(t) == 2 and t[0] in tuple(dtypes.BY_NAME) and _is_sizes(plan, t[1], MAX_RANK)
            for t in w.tensors
        )
    )


def _check_kernel(kernel: Kernel, where: str) -> None:
    texts = (kernel.name, kernel.wgsl, kernel.hash)
    _need(all(isinstance(x, str) for x in texts), where, "its name, text and hash are not texts")
    _need(
        len(kernel.wgsl.encode("utf-16-le", "surrogatepass")) <= 2 * MAX_WGSL, where, "its text is longer than allowed"
    )
    _need("\0" not in kernel.wgsl, where, "its text has a zero byte")
    _need(_is_requirement(kernel.requires), where, "its requirements are malformed")
    kernel_layout(kernel.wgsl)


def _is_requirement(requires: Any) -> bool:
    if not isinstance(requires, Mapping) or not set(requires) <= set(REQUIREMENTS):
        return False
    texts, limits = [requires.get(k, ()) for k in ("features", "kinds", "architectures")], requires.get("limits", {})
    return (
        all(isinstance(t, (list, tuple)) and all(isinstance(x, str) for x in t) for t in texts)
        and isinstance(limits, Mapping)
        and all(k in DEFAULT_LIMITS and _is_int(v) for k, v in limits.items())
        and _is_int(requires.get("subgroup_size", 0))
    )


def _check_slot(plan: Plan, slot: Slot, where: str) -> None:
    _need(_is_ref(plan, slot.size) and isinstance(slot.label, str), where, "not a size and a label")
    if isinstance(slot.size, int):
        _need(slot.size >= ALIGN and slot.size % ALIGN == 0, where, "its size is not a multiple of 16, at least 16")
    _need(_is_multiple(plan, slot.after, ALIGN), where, "what follows its input is not a multiple of 16")
    if isinstance(slot.size, int) and isinstance(slot.after, int):
        _need(slot.after <= slot.size, where, "what follows its input is larger than it")


def _check_constants(constants: Sequence[Constant]) -> None:
    end = 0
    for i, c in enumerate(constants):
        where = f"constant {i}"
        _need(isinstance(c.name, str) and c.dtype in tuple(dtypes.BY_NAME), where, "its name or type is not known")
        shape = isinstance(c.shape, tuple) and len(c.shape) <= MAX_RANK and all(_is_int(d) and d >= 0 for d in c.shape)
        _need(shape, where, "its shape is malformed")
        nbytes = dtypes.BY_NAME[c.dtype].nbytes(math.prod(c.shape))
        _need(_is_int(c.nbytes) and c.nbytes == nbytes, where, "its bytes do not fit its shape")
        _need(_is_int(c.offset) and c.offset % ALIGN == 0, where, "its offset is not a multiple of 16")
        _need(c.offset >= end, where, "it overlaps the one before")
        end = c.offset + c.nbytes
    _need(end < LIMIT, "constants", "more bytes than allowed")


def _check_values(plan: Plan, inside: str) -> None:
    for kind in ("input", "output"):
        infos: tuple[ValueInfo, ...] = getattr(plan, kind + "s")
        for i, v in enumerate(infos):
            _check_value(plan, v, f"{inside}{kind} {i}")
        _need(len({v.name for v in infos}) == len(infos), f"{inside}{kind}s", "a name occurs twice")
    for name, v in plan.values.items():
        _check_value(plan, v, f"{inside}value {name!r}")
        _need(v.name == name, f"{inside}value {name!r}", "it has another name")


def _check_value(plan: Plan, v: ValueInfo, where: str) -> None:
    _need(isinstance(v.name, str) and v.dtype in ("", *dtypes.BY_NAME), where, "its name or type is not known")
    _need(v.shape is None or _is_sizes(plan, v.shape, MAX_RANK), where, "its shape is malformed")
    _need(v.contents is None or _is_sizes(plan, v.contents, MAX_ELEMENTS), where, "its contents are malformed")
    _need(_is_int(v.elements) and 0 <= v.elements <= MAX_ELEMENTS, where, "its number of elements is out of range")
    if v.place is not None:
        _check_place(plan, v.place, where)
        _need(dtypes.BY_NAME.get(v.dtype, dtypes.STRING).on_device, where, "its type is never on a device")
    if v.constant is not None:
        _need(_is_index(v.constant, plan.constants), where, "its constant is out of range")


def _check_dispatch(plan: Plan, step: Dispatch, target: Target, where: str) -> None:
    _need(isinstance(step.alternatives, tuple) and len(step.alternatives) > 0, where, "it has no kernel")
    lists = isinstance(step.bindings, tuple) and isinstance(step.params, tuple)
    _need(lists, where, "its bindings or params are no list")
    access = _check_bindings(plan, step, target, where)
    _check_textures(plan, step, access, where)
    for a in step.alternatives:
        _need(isinstance(a, tuple) and len(a) == 4, where, "an alternative is not a kernel and three group counts")
        _need(_is_index(a[0], plan.kernels), where, "its kernel is out of range")
        _need(all(_is_count(plan, n) for n in a[1:]), where, f"a group count is not a size up to {MAX_GROUPS}")
        layout = kernel_layout(plan.kernels[a[0]].wgsl)
        _need(layout.buffers == access, where, f"its kernel binds {layout.buffers!r}, the step {access!r}")
        words = len(step.params)
        _need(layout.words == words, where, f"its kernel takes {layout.words} params, the step has {words}")
        _check_loaders(step, layout, target, where)
    when = isinstance(step.when, tuple) and len(step.when) in (0, len(step.alternatives))
    _need(when and all(_is_ref(plan, d) for d in step.when), where, "its conditions are not a size per alternative")
    met = any(not target.meets(plan.kernels[a[0]].requires) for a in step.alternatives)
    _need(met, where, "the target meets the requirements of no kernel")
    _check_params(plan, step, where)


def _check_textures(plan: Plan, step: Dispatch, access: str, where: str) -> None:
    pairs = isinstance(step.textures, tuple) and all(isinstance(t, tuple) and len(t) == 2 for t in step.textures)
    _need(pairs, where, "its textures are no list of bindings and texels")
    for binding, texels in step.textures:
        _need(_is_index(binding, access) and access[binding] == "r", where, "a texture is of no binding that is read")
        place, _, offset, size = step.bindings[binding]
        _need(_is_multiple(plan, texels, 1), where, "a texture has no size")
        _need(place[0] == "s" or (_is_int(texels) and _is_int(offset)), where, "a constant's texture depends on sizes")
        whole = size or _whole(plan, place)
        if isinstance(whole, int) and isinstance(offset, int) and isinstance(texels, int):
            _need((0 if size else offset) + texels * ALIGN <= whole, where, "a texture reaches beyond its tensor")
    _need(len({b for b, _ in step.textures}) == len(step.textures), where, "a binding has two textures")


def _check_loaders(step: Dispatch, layout: KernelLayout, target: Target, where: str) -> None:
    known = {binding for binding, _ in step.textures}
    _need(all(b in known for b, _ in layout.textures()), where, "its kernel reads a texture that the step has not")
    for letters, limit in (("fu", "maxSampledTexturesPerShaderStage"), ("FU", "maxStorageTexturesPerShaderStage")):
        count, most = sum(a in letters for a in layout.access), target.limit(limit)
        _need(count <= most, where, f"its kernel has {count} textures, the target has {limit} {most}")


def _check_bindings(plan: Plan, step: Dispatch, target: Target, where: str) -> str:
    limit = target.limit("maxStorageBuffersPerShaderStage")
    _need(len(step.bindings) <= limit, where, f"it binds {len(step.bindings)} storage buffers, the target has {limit}")
    read: set[Place] = set()
    written: set[Place] = set()
    access = ""
    for b in step.bindings:
        _need(isinstance(b, tuple) and len(b) == 4 and b[1] in ("r", "w"), where, "a binding is malformed")
        place, mode, offset, size = b
        _check_place(plan, place, where)
        _need(_is_multiple(plan, offset, OFFSET_ALIGN), where, "a binding's offset is not a multiple of 256")
        _need(_is_int(size) and size >= 0 and size % 4 == 0, where, "a binding's size is not a multiple of 4")
        _check_extent(plan, place, offset, size, target, where)
        if mode == "w":
            _need(place[0] == "s", where, "it writes a constant")
            _need(place not in written, where, "it binds a buffer twice that it writes")
        (written if mode == "w" else read).add(place)
        access += mode
    _need(not read & written, where, "it binds a buffer both read-only and written")
    return access


def _check_extent(plan: Plan, place: Place, offset: DimRef, size: int, target: Target, where: str) -> None:
    """As far as it is known before a run."""
    whole = _whole(plan, place)
    if isinstance(whole, int) and isinstance(offset, int):
        _need(offset < whole and offset + size <= whole, where, "it binds bytes beyond the end of a tensor")
        size = size or whole - offset
    limit = target.limit("maxStorageBufferBindingSize")
    _need(size <= limit, where, f"it binds {size} bytes of a tensor, the target has {limit}")


def _whole(plan: Plan, place: Place) -> DimRef:
    """The bytes of a place."""
    kind, index = place
    return plan.slots[index].size if kind == "s" else max(ALIGN, -(-plan.constants[index].nbytes // ALIGN) * ALIGN)


def _check_params(plan: Plan, step: Dispatch, where: str) -> None:
    words = step.params
    _need(len(words) <= MAX_BLOCK and all(_is_word(plan, w) for w in words), where, "a parameter is not a 32-bit size")
    at = step.params_offset
    _need(_is_int(at) and at >= 0 and at % OFFSET_ALIGN == 0, where, "its params offset is not a multiple of 256")
    _need(not words or at + 4 * len(words) <= plan.params_size, where, "its params lie outside the block")


def _check_copy(plan: Plan, step: Copy, where: str) -> None:
    _check_place(plan, step.source, where)
    _check_place(plan, step.target, where)
    _need(step.target[0] == "s", where, "it writes a constant")
    _need(step.source != step.target, where, "it copies within one buffer")
    for size in (step.source_offset, step.target_offset, step.size):
        _need(_is_multiple(plan, size, 4), where, "an offset or a size is not a multiple of 4")


def _check_read(plan: Plan, step: Read, variables: set[str], where: str) -> None:
    pairs = isinstance(step.reads, tuple) and all(isinstance(r, tuple) and len(r) == 2 for r in step.reads)
    _need(pairs, where, "what it reads is no list of places and variables")
    for place, name in step.reads:
        _check_place(plan, place, where)
        _need(isinstance(name, str) and name in variables, where, "it reads a variable that no size has")


def _check_host(plan: Plan, step: HostStep, made: set[str], where: str) -> None:
    _need(_is_base64(step.proto), where, "its node is not base64, or longer than allowed")
    opsets = isinstance(step.opsets, Mapping) and all(_is_int(v) for v in step.opsets.values())
    _need(opsets, where, "its opsets are malformed")
    for names in (step.inputs, step.outputs, step.outer):
        _need(isinstance(names, tuple) and all(isinstance(n, str) for n in names), where, "its names are malformed")
    for name in (n for n in (*step.inputs, *step.outputs, *step.outer) if n):
        _need(name in plan.values, where, f"the value {name!r} is not known")
    for name in (n for n in (*step.inputs, *step.outer) if n):
        _need(_has_source(plan.values[name], made), where, f"nothing makes the value {name!r} before")
    made |= set(step.outputs)


def _check_control(plan: Plan, step: Branch | Loop, made: set[str], where: str) -> None:
    _need(is_well_formed(step), where, "its bodies, names or flags are malformed")
    for name in (*operands(step), *(n for n in step.outputs if n)):
        _need(name in plan.values, where, f"the value {name!r} is not known")
    for name in operands(step):
        _need(_has_source(plan.values[name], made), where, f"nothing makes the value {name!r} before")
    named = [n for n in step.outputs if n]
    _need(len(set(named)) == len(named), where, "an output occurs twice")
    _need(all(plan.values[n].place is not None for n in named), where, "an output has no place")
    if isinstance(step, Loop):
        _need(bool(step.trips or step.condition or step.elements or step.again), where, "nothing ends it")
        inputs = {v.name: v for v in step.body.inputs}
        roles = [b for _, b in step.state] + [b for _, b, _ in step.elements]
        for name in (*roles, *([step.number] if step.number else [])):
            _need(name in inputs, where, f"its body has no input {name!r}")
        _need(len(set(roles) - {step.number}) == len(roles), where, "an input of its body has two meanings")
        _need(all(inputs[n].place is not None for n in roles), where, "a state or an element has no place")
    made |= set(named)


def _has_source(v: ValueInfo, made: set[str]) -> bool:
    return v.name in made or any(x is not None for x in (v.place, v.constant, v.contents))


def _check_place(plan: Plan, place: Any, where: str) -> None:
    pair = isinstance(place, tuple) and len(place) == 2 and place[0] in ("s", "c")
    table: Sequence[Any] = (plan.slots if place[0] == "s" else plan.constants) if pair else ()
    _need(pair and _is_index(place[1], table), where, "a place is out of range")


def _target(plan: Plan) -> Target:
    _need(isinstance(plan.target, Mapping), "target", "not a target description")
    try:
        return Target.from_json(plan.target)
    except TargetError as e:
        raise PlanError(f"target: {e}") from e


def _need(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise PlanError(f"{where}: {what}; compile the model again")


def _is_int(x: Any) -> bool:
    return type(x) is int and abs(x) < LIMIT


def _is_index(x: Any, table: Sequence[Any]) -> bool:
    return type(x) is int and 0 <= x < len(table)


def _is_ref(plan: Plan, x: Any) -> bool:
    return _is_int(x) or (isinstance(x, tuple) and len(x) == 1 and _is_index(x[0], plan.dims))


def _is_multiple(plan: Plan, x: Any, of: int) -> bool:
    return _is_ref(plan, x) and (not isinstance(x, int) or (x >= 0 and x % of == 0))


def _is_sizes(plan: Plan, x: Any, longest: int) -> bool:
    return isinstance(x, tuple) and len(x) <= longest and all(_is_ref(plan, d) for d in x)


def _is_count(plan: Plan, x: Any) -> bool:
    return _is_ref(plan, x) and (not isinstance(x, int) or 0 <= x <= MAX_GROUPS)


def _is_word(plan: Plan, x: Any) -> bool:
    return _is_ref(plan, x) and (not isinstance(x, int) or -(1 << 31) <= x < 1 << 32)


def _is_base64(x: Any) -> bool:
    try:
        return isinstance(x, str) and len(x) <= MAX_PROTO and base64.b64decode(x, validate=True) is not None
    except (binascii.Error, ValueError):
        return False


def _depth(x: Any, level: int = 0) -> int:
    """How deep lists and mappings are nested; stops just beyond MAX_DEPTH."""
    if level > MAX_DEPTH or not isinstance(x, (list, tuple, Mapping)):
        return level
    inner = x.values() if isinstance(x, Mapping) else x
    return max((_depth(y, level + 1) for y in inner), default=level + 1)
