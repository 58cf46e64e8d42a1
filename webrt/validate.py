"""What a plan must satisfy before a byte of it reaches a device.

web/player.js has the twin, with the same texts; tests/unit/bad_plans.json is the table that both are tested on. What
depends on sizes (binding offsets, group counts, copies within their buffers) is checked by the executors at each run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from webrt import dtypes
from webrt.bounds import told
from webrt.dims import LIMIT, check_program, variables_of
from webrt.errors import PlanError, TargetError
from webrt.kernel_layout import kernel_layout
from webrt.plan import (
    ALIGN,
    Constant,
    Copy,
    Dispatch,
    HostStep,
    Kernel,
    PlacedNode,
    Plan,
    Read,
    Slot,
    ValueInfo,
    Work,
)
from webrt.rules import (
    check_place,
    is_base64,
    is_index,
    is_int,
    is_multiple,
    is_ref,
    is_sizes,
    need,
)
from webrt.subplans import Branch, Loop, is_well_formed, operands
from webrt.target import DEFAULT_LIMITS, REQUIREMENTS, Target
from webrt.validate_dispatch import check_dispatch

MAX_RANK = 64
MAX_ELEMENTS = 1 << 20
MAX_WGSL = 1 << 20
MAX_KERNELS = 20_000
MAX_TABLE = 1_000_000
MAX_PARAMS = 1 << 28
MAX_DEPTH = 32
MAX_NESTING = 8
MAX_TUNINGS = 64


@told(PlanError, "checking the plan")
def validate(plan: Plan, target: Target | None = None) -> None:
    """Raises PlanError naming the rule that `plan` breaks; `target` replaces the one that the plan was made for."""
    check_program(plan.dims)
    need(len(plan.kernels) <= MAX_KERNELS, "kernels", "more entries than allowed")
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
        need(is_ref(plan, size) and isinstance(message, str), f"{inside}check {i}", "not a size and a message")
    for i, slot in enumerate(plan.slots):
        _check_slot(plan, slot, f"{inside}slot {i}")
    _check_values(plan, inside)
    made, variables = {v.name for v in plan.inputs}, set(variables_of(plan.dims))
    for i, step in enumerate(plan.steps):
        where = f"{inside}step {i}"
        need(is_int(step.node) and -1 <= step.node < len(plan.placement), where, "its node is not in the placement")
        if isinstance(step, Dispatch):
            check_dispatch(plan, step, aim, where)
        elif isinstance(step, Copy):
            _check_copy(plan, step, where)
        elif isinstance(step, Read):
            _check_read(plan, step, variables, where)
        elif isinstance(step, (Branch, Loop)):
            _check_control(plan, step, made, where)
            need(depth < MAX_NESTING, where, "steps are nested deeper than allowed")
            for k, body in enumerate(step.bodies):
                _check_steps(plan.within(body), aim, f"{where}, body {k}, ", depth + 1)
        else:
            _check_host(plan, step, made, where)
    for v in plan.outputs:
        need(_has_source(v, made), f"{inside}output {v.name!r}", "nothing makes it")


def _check_tables(plan: Plan, inside: str) -> None:
    for key in ("inputs", "outputs", "values", "slots", "constants", "steps", "checks", "placement"):
        need(len(getattr(plan, key)) <= MAX_TABLE, inside + key, "more entries than allowed")
    size = plan.params_size
    need(is_int(size) and 0 <= size <= MAX_PARAMS, f"{inside}params_size", "not a size, or larger than allowed")


def _check_extras(plan: Plan) -> None:
    for i, p in enumerate(plan.placement):
        need(_is_line(p), f"placement {i}", "not a line of the report")
    need(len(plan.work) in (0, len(plan.steps)), "work", "not an entry for each step")
    for i, w in enumerate(plan.work):
        need(_is_work(plan, w), f"work {i}", "not tensors, operators and products")
    need(_depth(plan.meta) <= MAX_DEPTH, "meta", "nested deeper than allowed")
    need(isinstance(plan.meta, Mapping), "meta", "no record")
    _check_known(plan)
    clamped = plan.meta.get("clamped", [])
    need(isinstance(clamped, list) and all(isinstance(x, str) for x in clamped), "clamped inputs", "no list of names")
    need(len(plan.tuning) <= MAX_TUNINGS, "tuning", "more entries than allowed")
    need(_depth(plan.tuning) <= MAX_DEPTH, "tuning", "nested deeper than allowed")
    for i, t in enumerate(plan.tuning):
        need(
            isinstance(t, Mapping) and isinstance(t.get("adapter"), Mapping), f"tuning {i}", "not a table of an adapter"
        )


def _check_known(plan: Plan) -> None:
    known, free = plan.meta.get("known", {}), {v.name for v in plan.inputs if v.place is None and not v.elements}
    need(isinstance(known, Mapping) and free.issuperset(known), "known inputs", "not inputs that nothing reads")
    for name, entry in known.items():
        texts = isinstance(entry, Mapping) and all(isinstance(entry.get(k), str) for k in ("text", "bits"))
        need(texts, f"known input {name!r}", "no text and bits")


def _is_line(p: PlacedNode) -> bool:
    crossing = p.bytes is None or (is_int(p.bytes) and p.bytes >= 0)
    return crossing and all(isinstance(x, str) for x in (p.node, p.op, p.provider, p.how, p.reason))


def _is_work(plan: Plan, w: Work) -> bool:
    lists = all(isinstance(x, tuple) for x in (w.tensors, w.ops, w.flop))
    return (
        lists
        and all(isinstance(op, str) for op in w.ops)
        and all(is_sizes(plan, product, MAX_RANK) for product in w.flop)
        and all(
            isinstance(t, tuple) and len(t) == 2 and t[0] in tuple(dtypes.BY_NAME) and is_sizes(plan, t[1], MAX_RANK)
            for t in w.tensors
        )
    )


def _check_kernel(kernel: Kernel, where: str) -> None:
    texts = (kernel.name, kernel.wgsl, kernel.hash)
    need(all(isinstance(x, str) for x in texts), where, "its name, text and hash are not texts")
    need(
        len(kernel.wgsl.encode("utf-16-le", "surrogatepass")) <= 2 * MAX_WGSL, where, "its text is longer than allowed"
    )
    need("\0" not in kernel.wgsl, where, "its text has a zero byte")
    need(_is_requirement(kernel.requires), where, "its requirements are malformed")
    kernel_layout(kernel.wgsl)


def _is_requirement(requires: Any) -> bool:
    if not isinstance(requires, Mapping) or not set(requires) <= set(REQUIREMENTS):
        return False
    texts, limits = [requires.get(k, ()) for k in ("features", "kinds", "architectures")], requires.get("limits", {})
    return (
        all(isinstance(t, (list, tuple)) and all(isinstance(x, str) for x in t) for t in texts)
        and isinstance(limits, Mapping)
        and all(k in DEFAULT_LIMITS and is_int(v) for k, v in limits.items())
        and is_int(requires.get("subgroup_size", 0))
    )


def _check_slot(plan: Plan, slot: Slot, where: str) -> None:
    need(is_ref(plan, slot.size) and isinstance(slot.label, str), where, "not a size and a label")
    if isinstance(slot.size, int):
        need(slot.size >= ALIGN and slot.size % ALIGN == 0, where, "its size is not a multiple of 16, at least 16")
    need(is_multiple(plan, slot.after, ALIGN), where, "what follows its input is not a multiple of 16")
    if isinstance(slot.size, int) and isinstance(slot.after, int):
        need(slot.after <= slot.size, where, "what follows its input is larger than it")


def _check_constants(constants: Sequence[Constant]) -> None:
    end = 0
    for i, c in enumerate(constants):
        where = f"constant {i}"
        need(isinstance(c.name, str) and c.dtype in tuple(dtypes.BY_NAME), where, "its name or type is not known")
        shape = isinstance(c.shape, tuple) and len(c.shape) <= MAX_RANK and all(is_int(d) and d >= 0 for d in c.shape)
        need(shape, where, "its shape is malformed")
        nbytes = dtypes.BY_NAME[c.dtype].nbytes(math.prod(c.shape))
        need(is_int(c.nbytes) and c.nbytes == nbytes, where, "its bytes do not fit its shape")
        need(is_int(c.offset) and c.offset % ALIGN == 0, where, "its offset is not a multiple of 16")
        need(c.offset >= end, where, "it overlaps the one before")
        end = c.offset + c.nbytes
    need(end < LIMIT, "constants", "more bytes than allowed")


def _check_values(plan: Plan, inside: str) -> None:
    for kind in ("input", "output"):
        infos: tuple[ValueInfo, ...] = getattr(plan, kind + "s")
        for i, v in enumerate(infos):
            _check_value(plan, v, f"{inside}{kind} {i}")
        need(len({v.name for v in infos}) == len(infos), f"{inside}{kind}s", "a name occurs twice")
    for name, v in plan.values.items():
        _check_value(plan, v, f"{inside}value {name!r}")
        need(v.name == name, f"{inside}value {name!r}", "it has another name")


def _check_value(plan: Plan, v: ValueInfo, where: str) -> None:
    need(isinstance(v.name, str) and v.dtype in ("", *dtypes.BY_NAME), where, "its name or type is not known")
    need(v.shape is None or is_sizes(plan, v.shape, MAX_RANK), where, "its shape is malformed")
    need(v.contents is None or is_sizes(plan, v.contents, MAX_ELEMENTS), where, "its contents are malformed")
    need(is_int(v.elements) and 0 <= v.elements <= MAX_ELEMENTS, where, "its number of elements is out of range")
    if v.place is not None:
        check_place(plan, v.place, where)
        need(dtypes.BY_NAME.get(v.dtype, dtypes.STRING).on_device, where, "its type is never on a device")
    if v.constant is not None:
        need(is_index(v.constant, plan.constants), where, "its constant is out of range")


def _check_copy(plan: Plan, step: Copy, where: str) -> None:
    check_place(plan, step.source, where)
    check_place(plan, step.target, where)
    need(step.target[0] == "s", where, "it writes a constant")
    need(step.source != step.target, where, "it copies within one buffer")
    for size in (step.source_offset, step.target_offset, step.size):
        need(is_multiple(plan, size, 4), where, "an offset or a size is not a multiple of 4")


def _check_read(plan: Plan, step: Read, variables: set[str], where: str) -> None:
    pairs = isinstance(step.reads, tuple) and all(isinstance(r, tuple) and len(r) == 2 for r in step.reads)
    need(pairs, where, "what it reads is no list of places and variables")
    for place, name in step.reads:
        check_place(plan, place, where)
        need(isinstance(name, str) and name in variables, where, "it reads a variable that no size has")


def _check_host(plan: Plan, step: HostStep, made: set[str], where: str) -> None:
    need(is_base64(step.proto), where, "its node is not base64, or longer than allowed")
    opsets = isinstance(step.opsets, Mapping) and all(is_int(v) for v in step.opsets.values())
    need(opsets, where, "its opsets are malformed")
    for names in (step.inputs, step.outputs, step.outer):
        need(isinstance(names, tuple) and all(isinstance(n, str) for n in names), where, "its names are malformed")
    for name in (n for n in (*step.inputs, *step.outputs, *step.outer) if n):
        need(name in plan.values, where, f"the value {name!r} is not known")
    for name in (n for n in (*step.inputs, *step.outer) if n):
        need(_has_source(plan.values[name], made), where, f"nothing makes the value {name!r} before")
    made |= set(step.outputs)


def _check_control(plan: Plan, step: Branch | Loop, made: set[str], where: str) -> None:
    need(is_well_formed(step), where, "its bodies, names or flags are malformed")
    for name in (*operands(step), *(n for n in step.outputs if n)):
        need(name in plan.values, where, f"the value {name!r} is not known")
    for name in operands(step):
        need(_has_source(plan.values[name], made), where, f"nothing makes the value {name!r} before")
    named = [n for n in step.outputs if n]
    need(len(set(named)) == len(named), where, "an output occurs twice")
    need(all(plan.values[n].place is not None for n in named), where, "an output has no place")
    if isinstance(step, Loop):
        need(bool(step.trips or step.condition or step.elements or step.again), where, "nothing ends it")
        inputs = {v.name: v for v in step.body.inputs}
        roles = [b for _, b in step.state] + [b for _, b, _ in step.elements]
        for name in (*roles, *([step.number] if step.number else [])):
            need(name in inputs, where, f"its body has no input {name!r}")
        need(len(set(roles) - {step.number}) == len(roles), where, "an input of its body has two meanings")
        need(all(inputs[n].place is not None for n in roles), where, "a state or an element has no place")
    made |= set(named)


def _has_source(v: ValueInfo, made: set[str]) -> bool:
    return v.name in made or any(x is not None for x in (v.place, v.constant, v.contents))


def _target(plan: Plan) -> Target:
    need(isinstance(plan.target, Mapping), "target", "not a target description")
    try:
        return Target.from_json(plan.target)
    except TargetError as e:
        raise PlanError(f"target: {e}") from e


def _depth(x: Any, level: int = 0) -> int:
    """How deep lists and mappings are nested; stops just beyond MAX_DEPTH."""
    if level > MAX_DEPTH or not isinstance(x, (list, tuple, Mapping)):
        return level
    inner = x.values() if isinstance(x, Mapping) else x
    return max((_depth(y, level + 1) for y in inner), default=level + 1)
