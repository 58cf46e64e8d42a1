"""Stands in for ml_dtypes in the page, whose real wheel is 0.2 MB of compiled code for arithmetic that kernels do.

Each name is a structured numpy dtype of one element with the right size. That is enough for onnx to import, to check
models and to infer shapes, and for raw bytes to pass to a device; arithmetic on such an array raises TypeError, and the
CPU provider refuses it.
`webrt site` packs this file into a wheel named ml_dtypes; natively the real package is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__version__ = "0.5.4+webrt"


def _opaque(name: str, storage: type[np.generic]) -> np.dtype[np.void]:
    """A dtype that equals no other one and holds one `storage` element."""
    return np.dtype([(name, storage)])


bfloat16 = _opaque("bfloat16", np.uint16)
float4_e2m1fn = _opaque("float4_e2m1fn", np.uint8)
float6_e2m3fn = _opaque("float6_e2m3fn", np.uint8)
float6_e3m2fn = _opaque("float6_e3m2fn", np.uint8)
float8_e3m4 = _opaque("float8_e3m4", np.uint8)
float8_e4m3 = _opaque("float8_e4m3", np.uint8)
float8_e4m3b11fnuz = _opaque("float8_e4m3b11fnuz", np.uint8)
float8_e4m3fn = _opaque("float8_e4m3fn", np.uint8)
float8_e4m3fnuz = _opaque("float8_e4m3fnuz", np.uint8)
float8_e5m2 = _opaque("float8_e5m2", np.uint8)
float8_e5m2fnuz = _opaque("float8_e5m2fnuz", np.uint8)
float8_e8m0fnu = _opaque("float8_e8m0fnu", np.uint8)
int2 = _opaque("int2", np.int8)
int4 = _opaque("int4", np.int8)
uint2 = _opaque("uint2", np.uint8)
uint4 = _opaque("uint4", np.uint8)


def finfo(dtype: Any) -> Any:
    """numpy's own limits; raises ValueError for the types of this module."""
    return np.finfo(dtype)


def iinfo(dtype: Any) -> Any:
    """numpy's own limits; raises ValueError for the types of this module."""
    return np.iinfo(dtype)
