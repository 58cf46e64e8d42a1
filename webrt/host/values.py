"""What flows through the CPU provider, and numpy's names for ONNX's element types."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from webrt.dtypes import BY_CODE
from webrt.errors import UnsupportedType

Array: TypeAlias = npt.NDArray[Any]
HostValue: TypeAlias = Array | list[Any] | dict[Any, Any] | None
Outputs: TypeAlias = Any  # what an operator returns: one HostValue, or a tuple of them

_PLAIN: dict[int, type[Any]] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 8: np.object_,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 14: np.complex64, 15: np.complex128,
}  # fmt: skip
_CODES: dict[np.dtype[Any], int] = {np.dtype(t): code for code, t in _PLAIN.items()}
_ML_DTYPES: dict[int, str] = {
    16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
    21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
    27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip
_NARROW_FLOATS = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
     "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn"}
)  # fmt: skip


def np_dtype(code: int) -> np.dtype[Any]:
    """numpy's dtype of a TensorProto.DataType; types beyond numpy's own come from ml_dtypes, loaded only then."""
    plain = _PLAIN.get(code)
    if plain is not None:
        return np.dtype(plain)
    name = _ML_DTYPES.get(code)
    if name is None:
        raise UnsupportedType(f"element type {code} is not one that ONNX defines; re-export the model")
    import ml_dtypes

    found = getattr(ml_dtypes, name, None)
    dtype = np.dtype(found) if found is not None else None
    if dtype is None or dtype.names:  # a stand-in for ml_dtypes, as in a page
        raise UnsupportedType(
            f"the element type {type_name(code)} needs the package ml_dtypes, which is not here; "
            "convert the model to float16 or float32"
        )
    return cast("np.dtype[Any]", dtype)


def type_code(dtype: np.dtype[Any]) -> int:
    """TensorProto.DataType of a numpy dtype; strings may be object or unicode arrays."""
    if dtype.kind in "US":
        return 8
    found = _CODES.get(dtype)
    if found is not None:
        return found
    for code, name in _ML_DTYPES.items():
        if dtype.name == name:
            return code
    raise UnsupportedType(f"numpy's {dtype} is not an element type of ONNX; convert it before the call")


def type_name(code: int) -> str:
    """ONNX's name of an element type."""
    known = BY_CODE.get(code)
    return known.name if known else f"type {code}"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float of any width."""
    return dtype.kind == "f" or dtype.name in _NARROW_FLOATS


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether sums in this type have to accumulate in float32: float16, bfloat16, float8 …"""
    return dtype == np.float16 or dtype.name in _NARROW_FLOATS


def wide(x: Array) -> Array:
    """The same values in a type that sums well: float32 for narrow floats, otherwise x itself."""
    return x.astype(np.float32) if is_narrow(x.dtype) else x


def describe(value: HostValue) -> str:
    """`float32[2,3]`, `sequence of 4`, `map of 2` or `none`."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    name = "string" if value.dtype.kind in "OUS" else value.dtype.name
    return f"{name}[{','.join(map(str, value.shape))}]"
