"""How a session is set up: the options and provider lists that ONNX Runtime's users know."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from webrt.errors import InputError

WEBGPU = "WebGpuExecutionProvider"
CPU = "CPUExecutionProvider"
DEVICE_OPTIONS = frozenset({"power_preference", "adapter", "force_fallback", "limits"})
"""Options of the WebGPU provider that say which device it takes."""
WEBGPU_OPTIONS = DEVICE_OPTIONS | {"tuning", "tuning_file", "tuning_budget"}

DISABLED_PASSES = "optimization.disable_specified_optimizers"
"""The config entry that names the passes to leave out."""
ENTRIES = frozenset(
    f"session.{key}"
    for key in (
        "compile_only", "plan_filepath", "optimized_model_external_initializers_file_name", "disable_cpu_ep_fallback",
        "auto_recover", "run_timeout", "compile_timeout", "compile_memory", "node_providers",
    )
)  # fmt: skip
"""The config entries that webrt reads."""
ORT_ENTRIES = frozenset(
    f"session.{key}"
    for key in (
        "allow_released_opsets_only", "collect_node_memory_stats_to_file", "debug_layout_transformation",
        "disable_aot_function_inlining", "disable_double_qdq_remover", "disable_model_compile", "disable_prepacking",
        "disable_qdq_constant_folding", "disable_quant_qdq", "dynamic_block_base", "enable_dq_matmulnbits_fusion",
        "enable_quant_qdq_cleanup", "force_spinning_stop", "graph_optimizations_loop_level",
        "inter_op.allow_spinning", "intra_op.allow_spinning", "intra_op_thread_affinities",
        "layer_assignment_settings", "load_model_format", "node_partition_config_file",
        "optimized_model_external_initializers_min_size_in_bytes", "qdq_matmulnbits_accuracy_level",
        "qdq_matmulnbits_block_size", "qdqisint8allowed", "record_ep_graph_assignment_info",
        "resource_cuda_partitioning_settings", "save_external_prepacked_constant_initializers", "save_model_format",
        "set_denormal_as_zero", "strict_shape_type_inference", "use_device_allocator_for_initializers",
        "use_env_allocators", "use_ort_model_bytes_directly", "use_ort_model_bytes_for_initializers",
        "x64quantprecision",
    )
)  # fmt: skip
"""ONNX Runtime's, which are accepted and have no effect."""

ProviderEntry: TypeAlias = str | tuple[str, Mapping[str, Any]]


class GraphOptimizationLevel(IntEnum):
    """Which passes run: none but those that are needed, the basic ones, fusions too, all."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


@dataclass(frozen=True)
class Provider:
    """An entry of a provider list."""

    name: str
    options: Mapping[str, Any]


class RunOptions:
    """Options of a run; names and meanings are ONNX Runtime's.

    `terminate`: set to True, by any thread, it ends the run before its next submit or host step, with RunTerminated.
    `log_severity_level`, `log_verbosity_level` and `logid` are accepted and have no effect.
    """

    __slots__ = ("log_severity_level", "log_verbosity_level", "logid", "terminate")

    def __init__(self) -> None:
        self.terminate = False
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""


class SessionOptions:
    """Options of an InferenceSession; names and meanings are ONNX Runtime's. Any other attribute is an AttributeError.

    `log_severity_level`: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal; messages below it are not logged.
    `progress(stage, done, total)` (webrt's own) is called while a session is made: stage "compile", and in a page
    "download" (bytes of constants) and "pipelines"; and "tuning" while kernels are measured, at a first run too.
    `enable_profiling`: runs are timed step by step until `end_profiling()` writes a Chrome trace; its name starts with
    `profile_file_prefix`.
    `intra_op_num_threads` and `inter_op_num_threads` are accepted and have no effect.

    Config entries that webrt reads ("0" or "1", a path, or a number); a session warns of other `session.` entries that
    ONNX Runtime lacks too:
      session.compile_only             stop after the optimised model and the plan are made; no device is touched
      session.plan_filepath            where to write the plan (a .webrt file)
      session.optimized_model_external_initializers_file_name
                                       a file beside the optimised model for its large tensors
      session.disable_cpu_ep_fallback  a node that would run on the CPU is a PlacementError
      session.auto_recover             a run that meets a lost device gets a new one and is done once more (not where it
                                       was given up for `session.run_timeout`)
      session.run_timeout              seconds for a run (RunTerminated), and for one wait for the device, which is then
                                       given up (DeviceLost)
      session.compile_timeout          seconds that compiling a model may take (ModelError)
      session.compile_memory           bytes that a model's data and what is computed of it may take while it is
                                       compiled, by predicted sizes (ModelError); by default three quarters of the
                                       machine's memory
      session.node_providers           JSON: {"name of a node": "webgpu" or "cpu"}; PlacementError where that cannot be
      optimization.disable_specified_optimizers
                                       names of passes to leave out (`webrt inspect --passes` lists them), with a
                                       semicolon between two
    """

    __slots__ = (
        "_denotations",
        "_entries",
        "_free_dims",
        "enable_profiling",
        "graph_optimization_level",
        "inter_op_num_threads",
        "intra_op_num_threads",
        "log_severity_level",
        "optimized_model_filepath",
        "profile_file_prefix",
        "progress",
    )

    def __init__(self) -> None:
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.optimized_model_filepath: str | os.PathLike[str] = ""
        self.log_severity_level = 2
        self.progress: Callable[[str, int, int], None] | None = None
        self.enable_profiling = False
        self.profile_file_prefix = "webrt_profile_"
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self._entries: dict[str, str] = {}
        self._free_dims: dict[str, int] = {}
        self._denotations: dict[str, int] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Sets a config entry; both are texts."""
        self._entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a config entry. Raises InputError where it was not set."""
        if key not in self._entries:
            raise InputError(f"there is no session config entry {key!r}; set are {', '.join(self._entries) or 'none'}")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fixes the named dim at `value` when the model is loaded."""
        self._free_dims[name] = _size(name, value)

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        """Fixes the dims that the model denotes so (DATA_BATCH …) at `value` when it is loaded."""
        self._denotations[denotation] = _size(denotation, value)

    @property
    def free_dimensions(self) -> Mapping[str, int]:
        """The sizes of named dims that were fixed."""
        return dict(self._free_dims)

    @property
    def free_denotations(self) -> Mapping[str, int]:
        """The sizes of denoted dims that were fixed."""
        return dict(self._denotations)

    def entry(self, key: str) -> str:
        """The value of a config entry, "" where it was not set."""
        return self._entries.get(key, "")

    def warnings(self) -> list[str]:
        """A line for each `session.` entry that neither webrt nor ONNX Runtime has: it may be misspelt."""
        found = []
        for key in self._entries:
            if key.startswith("session.") and key not in ENTRIES | ORT_ENTRIES:
                near = difflib.get_close_matches(key, sorted(ENTRIES), 1)
                found.append(f"there is no session config entry {key!r}; it is ignored")
                found[-1] += f": did you mean {near[0]!r}?" if near else f" (there are {', '.join(sorted(ENTRIES))})"
        return found

    def seconds(self, key: str) -> float | None:
        """A config entry that is a time; None where it was not set. Raises InputError for what is no time above 0."""
        return self._number(key, "seconds")

    def count(self, key: str) -> int | None:
        """A config entry that is a number of bytes; None where it was not set. Raises InputError for what is none."""
        value = self._number(key, "bytes")
        return None if value is None else int(value)

    def _number(self, key: str, unit: str) -> float | None:
        text = self.entry(key)
        try:
            value = float(text) if text else None
        except ValueError:
            value = 0.0
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"the session config entry {key!r} is a number of {unit} above 0, not {text!r}")
        return value

    def table(self, key: str) -> dict[str, str]:
        """A config entry that is a JSON object of texts; empty where it was not set. Raises InputError."""
        try:
            value = json.loads(self.entry(key) or "{}")
        except ValueError:
            value = None
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise InputError(f"the session config entry {key!r} is a JSON object of texts, not {self.entry(key)!r}")
        return value

    def is_set(self, key: str) -> bool:
        """Whether a config entry is "1". Raises InputError for anything but "0" and "1"."""
        value = self.entry(key)
        if value not in ("", "0", "1"):
            raise InputError(f'the session config entry {key!r} is "0" or "1", not {value!r}')
        return value == "1"


def parse_providers(
    providers: Sequence[ProviderEntry] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> list[Provider] | None:
    """A provider list as ONNX Runtime takes it: names, or (name, options); or names with a list of options beside it.

    None means that the caller leaves the choice. Raises InputError for names and options that do not exist.
    """
    if providers is None:
        if provider_options:
            raise InputError("provider_options were given without providers")
        return None
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise InputError(f"providers is a list of names or (name, options); {providers!r} was given")
    if provider_options is not None and len(provider_options) != len(providers):
        raise InputError(f"{len(providers)} providers and {len(provider_options)} provider_options were given")
    out: list[Provider] = []
    for i, entry in enumerate(providers):
        if isinstance(entry, str):
            entry = (entry, {})
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Mapping)):
            raise InputError(f"a provider is a name or (name, options); {entry!r} was given")
        name, options = entry
        chosen = Provider(name, {**options, **(provider_options[i] if provider_options else {})})
        _check_provider(chosen)
        if chosen.name not in [p.name for p in out]:
            out.append(chosen)
    if not out:
        raise InputError(f"the provider list is empty; the providers are {WEBGPU} and {CPU}")
    return out


def _check_provider(provider: Provider) -> None:
    if provider.name not in (WEBGPU, CPU):
        raise InputError(f"there is no provider {provider.name!r}; the providers are {WEBGPU} and {CPU}")
    known = WEBGPU_OPTIONS if provider.name == WEBGPU else frozenset()
    extra = sorted(set(provider.options) - known)
    if extra:
        raise InputError(
            f"{provider.name} has no option {', '.join(map(repr, extra))}; it has {', '.join(sorted(known)) or 'none'}"
        )


def _size(name: str, value: int) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**31:
        raise InputError(f"the dim {name!r} cannot be {value!r}: a size is an integer from 0 to 2**31 - 1")
    return int(value)
