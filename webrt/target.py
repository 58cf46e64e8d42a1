"""What a plan may assume of a device: plain data, never a device."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from webrt.errors import TargetError

# https://www.w3.org/TR/webgpu/#limits, the defaults that every device guarantees.
DEFAULT_LIMITS: dict[str, int] = {
    "maxStorageBuffersPerShaderStage": 8,
    "maxUniformBuffersPerShaderStage": 12,
    "maxUniformBufferBindingSize": 65536,
    "maxStorageBufferBindingSize": 134217728,
    "maxBufferSize": 268435456,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxTextureDimension2D": 8192,
    "maxSampledTexturesPerShaderStage": 16,
    "maxStorageTexturesPerShaderStage": 4,
    "minUniformBufferOffsetAlignment": 256,
    "minStorageBufferOffsetAlignment": 256,
}

# https://www.w3.org/TR/webgpu/#gpufeaturename
FEATURES = frozenset(
    {
        "core-features-and-limits", "depth-clip-control", "depth32float-stencil8", "texture-compression-bc",
        "texture-compression-bc-sliced-3d", "texture-compression-etc2", "texture-compression-astc",
        "texture-compression-astc-sliced-3d", "timestamp-query", "indirect-first-instance", "shader-f16",
        "rg11b10ufloat-renderable", "bgra8unorm-storage", "float32-filterable", "float32-blendable", "clip-distances",
        "dual-source-blending", "subgroups", "texture-formats-tier1", "texture-formats-tier2", "primitive-index",
        "texture-component-swizzle",
    }
)  # fmt: skip
"""WebGPU's names of features."""

REQUIREMENTS = ("features", "limits", "kinds", "architectures", "subgroup_size")
"""What a kernel may require of a target: features and limits of WebGPU, the kinds and the architectures of adapters
that it is written for, and the size that all subgroups have."""


@dataclass(frozen=True)
class Target:
    """Limits (WebGPU's names), features ("shader-f16", "subgroups", …) and the kind of adapter.

    `kind` is "any", "software" or "gpu"; `subgroup_sizes` is (min, max), (0, 0) when not known.
    """

    name: str = "webgpu"
    kind: str = "any"
    vendor: str = ""
    architecture: str = ""
    limits: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    features: frozenset[str] = frozenset()
    subgroup_sizes: tuple[int, int] = (0, 0)

    def limit(self, name: str) -> int:
        """The limit's value; the WebGPU default where the target does not say."""
        return self.limits.get(name, DEFAULT_LIMITS[name])

    def with_limits(self, **limits: int) -> Target:
        """The same target with some limits replaced."""
        return replace(self, limits={**self.limits, **limits})

    def meets(self, requires: Mapping[str, Any]) -> str:
        """Why the target does not meet `requires` (keys REQUIREMENTS, all optional); empty when it does."""
        for feature in requires.get("features", ()):
            if feature not in self.features:
                return f"feature {feature!r} is needed, the target {self.name!r} lacks it"
        for name, need in requires.get("limits", {}).items():
            if self.limit(name) < need:
                return f"{name} of {need} is needed, the target {self.name!r} has {self.limit(name)}"
        for key, have in (("kinds", self.kind), ("architectures", self.architecture)):
            if key in requires and have not in requires[key]:
                return f"{key} {', '.join(requires[key])} are served, the target {self.name!r} is {have!r}"
        size = requires.get("subgroup_size", 0)
        if size and self.subgroup_sizes != (size, size):
            return f"subgroups of {size} are needed, those of the target {self.name!r} are {list(self.subgroup_sizes)}"
        return ""

    def check_features(self) -> None:
        """Raises TargetError where a feature is none of WebGPU's: it is misspelt, or the target another API's."""
        for feature in sorted(self.features - FEATURES):
            near = difflib.get_close_matches(feature, sorted(FEATURES), 1)
            meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(FEATURES))}"
            raise TargetError(f"the target {self.name!r} has the feature {feature!r}, which WebGPU lacks: {meant}")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "limits": dict(self.limits), "features": sorted(self.features)}

    @staticmethod
    def from_json(data: Mapping[str, Any] | str) -> Target:
        """Raises TargetError when the data is not a target."""
        try:
            fields = dict(json.loads(data) if isinstance(data, str) else data)
            return Target(
                **{
                    **fields,
                    "limits": {str(k): _whole(v) for k, v in fields.get("limits", DEFAULT_LIMITS).items()},
                    "features": frozenset(_texts(fields.get("features", ()))),
                    "subgroup_sizes": _pair(fields.get("subgroup_sizes", (0, 0))),
                }
            )
        except (TypeError, ValueError, AttributeError) as e:
            raise TargetError(f"not a target description: {e}") from e


def _whole(x: Any) -> int:
    if type(x) is not int or abs(x) >= 1 << 53:
        raise TypeError(f"{x!r} is no whole number")
    return x


def _texts(x: Any) -> list[str]:
    if not isinstance(x, (list, tuple)) or not all(isinstance(y, str) for y in x):
        raise TypeError(f"{x!r} is no list of texts")
    return list(x)


def _pair(x: Any) -> tuple[int, int]:
    low, high = x if isinstance(x, (list, tuple)) else (None, None)
    return _whole(low), _whole(high)


BASE = Target()
"""What every WebGPU device guarantees."""

PRESETS: dict[str, Target] = {
    "webgpu": BASE,
    "lavapipe": Target(
        "lavapipe",
        "software",
        "mesa",
        "llvmpipe",
        {**DEFAULT_LIMITS, "maxStorageBuffersPerShaderStage": 32},
        frozenset({"shader-f16", "subgroups"}),
        (8, 8),
    ),
    "swiftshader": Target(
        "swiftshader",
        "software",
        "google",
        "swiftshader",
        {**DEFAULT_LIMITS, "maxStorageBuffersPerShaderStage": 10},
        frozenset({"subgroups"}),
        (4, 4),
    ),
}
