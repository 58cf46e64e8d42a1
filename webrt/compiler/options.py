"""What a caller decides about a compilation. Imports nothing of ONNX, so a process that only asks for one need not."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from webrt.compiler.datafiles import Reader
from webrt.target import BASE, Target

Level = Literal["disabled", "basic", "extended", "all"]


@dataclass(frozen=True)
class Precision:
    """A model in fewer bits; by default nothing changes. `f16`: half precision, with f32 islands. `weights`: "int8" or
    "int4", in blocks of `block` along k. `int8`: static quantisation, per channel, of Conv, MatMul and Gemm. `samples`
    of the inputs (arrays by name): int8 needs them (`method`: "minmax", or "entropy", which cuts off rare extremes),
    f16 finds its islands by them, and the difference of the first one's outputs is told."""

    f16: bool = False
    weights: Literal["", "int8", "int4"] = ""
    block: int = 32
    int8: bool = False
    method: Literal["minmax", "entropy"] = "minmax"
    samples: tuple[Mapping[str, Any], ...] = ()

    @property
    def asked(self) -> bool:
        """Whether anything but the default is wished."""
        return self != Precision()


@dataclass(frozen=True)
class PassRecord:
    """One run of a pass: nodes before and after (of an extended pass those with a kernel of their own), and seconds."""

    name: str
    before: int
    after: int
    seconds: float


@dataclass(frozen=True)
class CompileOptions:
    """`providers`: "webgpu", "cpu" in order of preference. `known_inputs`: elements of graph inputs, or new ones for
    initializers. `free_dims`: sizes of named dims, or (lowest, highest) where the size stays free. `denotations`:
    sizes of the dims that the model denotes so (DATA_BATCH …). `optimized_path`: where to write the optimised
    model, `optimized_data` the name of a file beside it for its large tensors; `optimized` is given it as bytes
    of an .onnx file (the last call counts). `strict`: a node on the CPU is a PlacementError. `external_data`:
    bytes by location, for models given as bytes, or a function that reads them. `disabled`: names of passes.
    `assumed`: sizes, as text, that are taken to be 0 or not where conditions depend on them; None leaves such
    conditions to the CPU provider. `progress(stage, done, total)` is called as stages begin, and once with
    "done". `passes` is told of each run of a pass. `precision`: in how few bits the model may be stored and
    computed. `seconds`: a ModelError where compiling
    takes longer; it is looked at before each node and pass, so a fold may end a little later. `memory`: bytes that
    the model's data and what is computed of it may take, predicted before they are; a ModelError where it is not
    enough. None is three quarters of the machine's. `places`: "webgpu" or "cpu" by name of a node of the model, for
    all that it becomes; what no device runs is a PlacementError then. Sizes and constants stay folded."""

    level: Level = "all"
    providers: tuple[str, ...] = ("webgpu", "cpu")
    target: Target = BASE
    known_inputs: Mapping[str, Any] = field(default_factory=dict)
    free_dims: Mapping[str, int | tuple[int, int]] = field(default_factory=dict)
    denotations: Mapping[str, int] = field(default_factory=dict)
    optimized_path: str | os.PathLike[str] | None = None
    optimized_data: str = ""
    optimized: Callable[[bytes], None] | None = None
    strict: bool = False
    external_data: Mapping[str, bytes] | Reader | None = None
    disabled: Collection[str] = ()
    assumed: Mapping[str, bool] | None = None
    progress: Callable[[str, int, int], None] | None = None
    passes: Callable[[PassRecord], None] | None = None
    precision: Precision = Precision()
    seconds: float | None = None
    memory: int | None = None
    places: Mapping[str, str] = field(default_factory=dict)

    def runs(self, name: str) -> bool:
        """Whether the pass `name` is on."""
        from webrt.compiler import normalize

        if name in normalize.FOR_DEVICES and "webgpu" not in self.providers:
            return False
        if name in normalize.REQUIRED:
            return True
        if name in normalize.HIGHEST and self.level != "all":
            return False
        if name in normalize.NEEDS and (self.level == "basic" or not self.runs(normalize.NEEDS[name])):
            return False
        return self.level != "disabled" and name not in self.disabled
