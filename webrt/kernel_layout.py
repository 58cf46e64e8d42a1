"""What the text of a kernel binds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from webrt.errors import PlanError

_BINDING = re.compile(
    r"@group\(0\) @binding\((\d+)\) var(?:<storage, (read|read_write)>|"
    r" \w+: (texture_2d<(?:f32|u32)>|texture_storage_2d<rgba32(?:float|uint), read>);)",
    re.ASCII,
)
_SAMPLER = re.compile(r"@group\(0\) @binding\((\d+)\) var nearest_texel: sampler;", re.ASCII)
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
    textures of these formats. `sampler`: after them comes a sampler of the nearest texel."""

    words: int
    access: str
    sampler: bool = False

    @property
    def buffers(self) -> str:
        """The access with every binding as a buffer."""
        return self.access.translate(_TEXTURES)

    def textures(self) -> list[tuple[int, bool]]:
        """(binding from 0, whether its texels are u32) of each texture."""
        return [(i, a in "uU") for i, a in enumerate(self.access) if a in "fuFU"]


@lru_cache(maxsize=4096)
def kernel_layout(wgsl: str) -> KernelLayout:
    """Read from the declarations that `wgsl.build` writes; raises PlanError where they are not in order."""
    found = _BINDING.findall(wgsl)
    if [n for n, *_ in found] != [str(i + 1) for i in range(len(found))]:
        raise PlanError("kernel: its storage bindings are not numbered from 1")
    sampler = _SAMPLER.findall(wgsl)
    if sampler not in ([], [str(len(found) + 1)]):
        raise PlanError("kernel: its sampler is not numbered after its storage bindings")
    start = wgsl.find(_PARAMS)
    end = wgsl.find("}", start + len(_PARAMS)) if start >= 0 else -1
    words = wgsl.count(":", start, end) if end >= 0 else 0
    if bool(_UNIFORM.search(wgsl)) != (words > 0):
        raise PlanError("kernel: its parameter block is not declared as one")
    return KernelLayout(words, "".join(_ACCESS[access or texture] for _, access, texture in found), bool(sampler))
