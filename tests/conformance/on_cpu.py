"""What stays on the CPU provider of operators with a kernel: element types, and why. Strict: test_types.py."""

from __future__ import annotations

from collections.abc import Mapping

FLOATS8 = "float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz"
ALL_INTEGERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64"
ON_CPU: Mapping[tuple[str, str], tuple[str, str]] = {
    ("Pow", "T"): ("int32 int64", "an integer to a float power needs f64 to be exact"),
    ("ReduceL2", "T"): ("int32 uint32 int64 uint64", "an integer root needs f64 to be exact"),
    ("MatMul", "T"): ("int64 uint64", "no product of two-word integers"),
    ("Gemm", "T"): ("int64 uint64", "no product of two-word integers"),
    ("Einsum", "T"): ("uint8 uint16 uint64 int8 int16 int64", "no product of packed or two-word integers"),
    ("ms.FusedMatMul", "F"): ("bfloat16", "onnxruntime defines no rounding for it"),
    ("ms.TransposeMatMul", "F"): ("bfloat16", "onnxruntime defines no rounding for it"),
    ("Col2Im", "T"): (f"{ALL_INTEGERS} bool", "sums in floats only"),
    ("GridSample", "T1"): (f"{ALL_INTEGERS} bool", "interpolates in floats only"),
    ("QLinearMatMul", "T1"): (FLOATS8, "no product of 8-bit floats"),
    ("QLinearMatMul", "T2"): (FLOATS8, "no product of 8-bit floats"),
    ("ms.QuantizeLinear", "R"): ("int32", "saturates to 16 bits at most"),
}
"""Operators and types of one of their type parameters, and why."""
