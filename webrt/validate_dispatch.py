"""What a dispatch of a plan must satisfy before a byte of it reaches a device."""

from __future__ import annotations

from webrt.dims import DimRef
from webrt.kernel_layout import KernelLayout, kernel_layout
from webrt.plan import ALIGN, Dispatch, Place, Plan
from webrt.rules import MAX_GROUPS, check_place, is_count, is_index, is_int, is_multiple, is_ref, is_word, need
from webrt.target import Target

OFFSET_ALIGN = 256
MAX_BLOCK = 16384


def check_dispatch(plan: Plan, step: Dispatch, target: Target, where: str) -> None:
    need(isinstance(step.alternatives, tuple) and len(step.alternatives) > 0, where, "it has no kernel")
    lists = isinstance(step.bindings, tuple) and isinstance(step.params, tuple)
    need(lists, where, "its bindings or params are no list")
    access = _check_bindings(plan, step, target, where)
    _check_textures(plan, step, access, where)
    for a in step.alternatives:
        need(isinstance(a, tuple) and len(a) == 4, where, "an alternative is not a kernel and three group counts")
        need(is_index(a[0], plan.kernels), where, "its kernel is out of range")
        need(all(is_count(plan, n) for n in a[1:]), where, f"a group count is not a size up to {MAX_GROUPS}")
        layout = kernel_layout(plan.kernels[a[0]].wgsl)
        need(layout.buffers == access, where, f"its kernel binds {layout.buffers!r}, the step {access!r}")
        words = len(step.params)
        need(layout.words == words, where, f"its kernel takes {layout.words} params, the step has {words}")
        _check_loaders(step, layout, target, where)
    when = isinstance(step.when, tuple) and len(step.when) in (0, len(step.alternatives))
    need(when and all(is_ref(plan, d) for d in step.when), where, "its conditions are not a size per alternative")
    met = any(not target.meets(plan.kernels[a[0]].requires) for a in step.alternatives)
    need(met, where, "the target meets the requirements of no kernel")
    _check_params(plan, step, where)


def _check_textures(plan: Plan, step: Dispatch, access: str, where: str) -> None:
    pairs = isinstance(step.textures, tuple) and all(isinstance(t, tuple) and len(t) == 2 for t in step.textures)
    need(pairs, where, "its textures are no list of bindings and texels")
    for binding, texels in step.textures:
        need(is_index(binding, access) and access[binding] == "r", where, "a texture is of no binding that is read")
        place, _, offset, size = step.bindings[binding]
        need(is_multiple(plan, texels, 1), where, "a texture has no size")
        need(place[0] == "s" or (is_int(texels) and is_int(offset)), where, "a constant's texture depends on sizes")
        whole = size or _whole(plan, place)
        if isinstance(whole, int) and isinstance(offset, int) and isinstance(texels, int):
            need((0 if size else offset) + texels * ALIGN <= whole, where, "a texture reaches beyond its tensor")
    need(len({b for b, _ in step.textures}) == len(step.textures), where, "a binding has two textures")


def _check_loaders(step: Dispatch, layout: KernelLayout, target: Target, where: str) -> None:
    known = {binding for binding, _ in step.textures}
    need(all(b in known for b, _ in layout.textures()), where, "its kernel reads a texture that the step has not")
    for letters, limit in (("fu", "maxSampledTexturesPerShaderStage"), ("FU", "maxStorageTexturesPerShaderStage")):
        count, most = sum(a in letters for a in layout.access), target.limit(limit)
        need(count <= most, where, f"its kernel has {count} textures, the target has {limit} {most}")


def _check_bindings(plan: Plan, step: Dispatch, target: Target, where: str) -> str:
    limit = target.limit("maxStorageBuffersPerShaderStage")
    need(len(step.bindings) <= limit, where, f"it binds {len(step.bindings)} storage buffers, the target has {limit}")
    read: set[Place] = set()
    written: set[Place] = set()
    access = ""
    for b in step.bindings:
        need(isinstance(b, tuple) and len(b) == 4 and b[1] in ("r", "w"), where, "a binding is malformed")
        place, mode, offset, size = b
        check_place(plan, place, where)
        need(is_multiple(plan, offset, OFFSET_ALIGN), where, "a binding's offset is not a multiple of 256")
        need(is_multiple(plan, size, 4), where, "a binding's size is not a multiple of 4")
        need(place[0] == "s" or is_int(size), where, "a constant's binding depends on sizes")
        _check_extent(plan, place, offset, size, target, where)
        if mode == "w":
            need(place[0] == "s", where, "it writes a constant")
            need(place not in written, where, "it binds a buffer twice that it writes")
        (written if mode == "w" else read).add(place)
        access += mode
    need(not read & written, where, "it binds a buffer both read-only and written")
    return access


def _check_extent(plan: Plan, place: Place, offset: DimRef, size: DimRef, target: Target, where: str) -> None:
    """As far as it is known before a run."""
    whole = _whole(plan, place)
    if not isinstance(size, int):
        return
    if isinstance(whole, int) and isinstance(offset, int):
        need(offset < whole and offset + size <= whole, where, "it binds bytes beyond the end of a tensor")
        size = size or whole - offset
    limit = target.limit("maxStorageBufferBindingSize")
    need(size <= limit, where, f"it binds {size} bytes of a tensor, the target has {limit}")


def _whole(plan: Plan, place: Place) -> DimRef:
    """The bytes of a place."""
    kind, index = place
    return plan.slots[index].size if kind == "s" else max(ALIGN, -(-plan.constants[index].nbytes // ALIGN) * ALIGN)


def _check_params(plan: Plan, step: Dispatch, where: str) -> None:
    words = step.params
    need(len(words) <= MAX_BLOCK and all(is_word(plan, w) for w in words), where, "a parameter is not a 32-bit size")
    at = step.params_offset
    need(is_int(at) and at >= 0 and at % OFFSET_ALIGN == 0, where, "its params offset is not a multiple of 256")
    need(not words or at + 4 * len(words) <= plan.params_size, where, "its params lie outside the block")
