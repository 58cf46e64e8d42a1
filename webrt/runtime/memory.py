"""A session's device memory: constants in arenas, slots that grow, and the parameter block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from webrt.errors import PlanError, TargetError
from webrt.plan import Place, Plan
from webrt.runtime.device import Buffer, Device, Range, Texture, padded
from webrt.runtime.tensor import upload
from webrt.runtime.textures import Content, TexturePool
from webrt.target import Target

LEAST_GROWN = 1 << 16
"""Bytes that a slot has once it had to grow: a cache that grows by an entry at a time starts small."""
ARENA_ALIGN = 256
"""WebGPU's alignment of storage bindings."""


class Memory:
    """Buffers of one session on one device; `close` frees them all.

    `generation` changes whenever a slot gets another buffer. `before` is called before anything is freed or params are
    written that recorded commands may use. `accumulators` of a loop hold what its iterations make, by output.
    """

    def __init__(
        self, plan: Plan, device: Device, target: Target, constants: Iterable[int], bound: Collection[int],
        contents: Iterable[Content] = (), around: Memory | None = None,
    ) -> None:  # fmt: skip
        """Uploads `constants` (indices) to buffers and `contents` to textures, one at a time. `bound` names the slots
        that kernels bind whole; `target` has the limits that are kept to. A sub-plan's memory has the constants of the
        memory `around` it."""
        self.plan, self.device, self.target = plan, device, target
        self.generation = 0
        self._bound = bound
        self._slots: list[Buffer | None] = [None] * len(plan.slots)
        self._arenas: list[Buffer] = []
        self._constants: dict[int, Range] = {} if around is None else around._constants
        self._textures: dict[Content, Texture] = {} if around is None else around._textures
        self._owner = around is None
        self.before: Callable[[], None] = _nothing
        self.accumulators: dict[int, Buffer] = {}
        self.pool = TexturePool(device, target.limit("maxTextureDimension2D"), self._changed)
        self.params: Buffer | None = None
        self._params_now = b""
        try:
            self.add(constants, contents)
            if plan.params_size:
                self.params = device.alloc(plan.params_size, "parameters", uniform=True)
                self._params_now = bytes(self.params.nbytes)
        except BaseException:
            self.close()
            raise

    def add(self, constants: Iterable[int], contents: Iterable[Content]) -> None:
        """Uploads those that are not on the device yet."""
        self._upload(sorted(set(constants) - self._constants.keys()))
        self._upload_textures(sorted(set(contents) - self._textures.keys()))

    def ensure(self, sizes: Sequence[int | None]) -> None:
        """Slots of at least these sizes, as far as they are needed; one that grows does so by half again, and to
        LEAST_GROWN at least."""
        for i, size in enumerate(sizes):
            if size is None:
                continue
            old = self._slots[i]
            if old is not None and old.nbytes >= size:
                continue
            roomy = 0 if old is None else min(max(old.nbytes + old.nbytes // 2, LEAST_GROWN), self._largest(i))
            wanted = max(size, roomy)
            if old is not None:
                self.before()
                self._slots[i] = None
                self.device.free(old)
            self.generation += 1
            self._slots[i] = self.device.alloc(wanted, self.plan.slots[i].label or f"slot {i}")

    def fits(self, sizes: Sequence[int | None]) -> bool:
        """Whether `ensure` would free nothing."""
        return all(b is None or size is None or b.nbytes >= size for b, size in zip(self._slots, sizes))

    def has(self, constant: int) -> bool:
        """Whether a constant is in a buffer."""
        return constant in self._constants

    def accumulator(self, number: int, nbytes: int) -> tuple[Buffer, Buffer | None]:
        """The buffer of a loop's output, of at least so many bytes, and the one that it takes the place of: the caller
        moves what is there and frees that."""
        old = self.accumulators.get(number)
        if old is not None and old.nbytes >= nbytes:
            return old, None
        wanted = nbytes if old is None else max(nbytes, min(2 * old.nbytes, self.target.limit("maxBufferSize")))
        self.accumulators[number] = self.device.alloc(padded(wanted), f"iterations of output {number}")
        return self.accumulators[number], old

    def range(self, place: Place, offset: int = 0, external: Mapping[int, Buffer] | None = None) -> Range:
        """The bytes of a place from `offset` to its end; `external` holds buffers that stand in for slots."""
        kind, index = place
        if kind == "c":
            whole = self._constants[index]
        else:
            buffer = (external or {}).get(index) or self._slots[index]
            if buffer is None:
                raise PlanError(f"the size of slot {self.plan.slots[index].label!r} is not known where a step needs it")
            whole = Range(buffer, 0, buffer.nbytes)
        if not 0 <= offset < whole.nbytes:
            raise PlanError(f"a step starts at byte {offset} of {whole.buffer.label!r}, which has {whole.nbytes}")
        return Range(whole.buffer, whole.offset + offset, whole.nbytes - offset)

    def binding(self, place: Place, offset: int, size: int, external: Mapping[int, Buffer] | None = None) -> Range:
        """What a dispatch binds: `size` bytes, or, where that is 0, as much of the rest as one binding holds."""
        rest = self.range(place, offset, external)
        if size > rest.nbytes:
            raise PlanError(f"a step binds {size} bytes of {rest.buffer.label!r}, of which {rest.nbytes} are left")
        return rest._replace(nbytes=size or min(rest.nbytes, self.target.limit("maxStorageBufferBindingSize")))

    def texture(self, content: Content) -> Texture:
        """A constant's texture."""
        return self._textures[content]

    def write_params(self, block: bytes) -> None:
        """Puts the parameter block on the device where it differs from what is there."""
        if self.params is None or self._params_now.startswith(block):
            return
        self.before()
        self.device.write(self.params, 0, block)
        self._params_now = block

    def close(self) -> None:
        """Frees everything; may be called again."""
        for buffer in [*self._arenas, *self._slots, self.params, *self.accumulators.values()]:
            if buffer is not None:
                self.device.free(buffer)
        self.accumulators.clear()
        self._arenas, self._slots, self.params = [], [None] * len(self._slots), None
        self.pool.close()
        if self._owner:
            self._constants.clear()
            for texture in self._textures.values():
                self.device.free_texture(texture)
            self._textures.clear()

    def _changed(self) -> None:
        self.before()
        self.generation += 1

    def _upload_textures(self, contents: Sequence[Content]) -> None:
        for content in contents:
            constant = self.plan.constants[content.place[1]]
            made = self.device.alloc_texture(content.texels, content.words, f"the constant {constant.name!r}")
            self._textures[content] = made
            data = memoryview(self.plan.constant_bytes(content.place[1])).cast("B")
            self.device.write_texture(made, data[content.offset : content.offset + 16 * content.texels])

    def _largest(self, slot: int) -> int:
        limit = self.target.limit("maxBufferSize")
        bound = self.target.limit("maxStorageBufferBindingSize")
        return (min(limit, bound) if slot in self._bound else limit) // 16 * 16

    def _upload(self, constants: Sequence[int]) -> None:
        for size, held in arenas(self.plan, self.target, constants):
            buffer = self.device.alloc(size, f"constants from {self.plan.constants[held[0][0]].name!r} on")
            self._arenas.append(buffer)
            for index, at in held:
                nbytes = self.plan.constants[index].nbytes
                upload(self.device, buffer, self.plan.constant_bytes(index), at)
                self._constants[index] = Range(buffer, at, padded(nbytes))


def _nothing() -> None:
    """Before a run there is nothing to submit."""


class Arena(NamedTuple):
    """A buffer of constants: its bytes, and (constant, offset) of each."""

    nbytes: int
    constants: list[tuple[int, int]]


def arenas(plan: Plan, target: Target, constants: Iterable[int]) -> list[Arena]:
    """Where constants are. One that is larger than a binding has an arena of its own; one that is larger than a buffer
    raises TargetError."""
    most = target.limit("maxBufferSize")
    limit = min(target.limit("maxStorageBufferBindingSize"), most)
    made: list[Arena] = []
    for index in constants:
        constant = plan.constants[index]
        size = padded(constant.nbytes)
        if size > most:
            raise TargetError(
                f"the constant {constant.name!r} has {size} bytes; the device {target.name!r} has maxBufferSize {most}"
            )
        before = made.pop() if made else Arena(0, [])
        offset = -(-before.nbytes // ARENA_ALIGN) * ARENA_ALIGN
        if before.constants and offset + size > limit:
            made.append(before)
            before, offset = Arena(0, []), 0
        before.constants.append((index, offset))
        made.append(Arena(offset + size, before.constants))
    return made
