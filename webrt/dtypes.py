"""One table of element types: ONNX → bytes in a buffer → WGSL → numpy and JavaScript arrays.

A tensor in a device buffer has exactly numpy's bytes (C order, little endian), padded with zeros to a multiple of 16.
Types narrower than 32 bits are packed: one 32-bit word holds 2 or 4 elements. Types of 2 and 4 bits take a byte each,
in its low bits, as numpy (ml_dtypes) has them. Kernels compute in `wgsl` types.
Source of the numbers: TensorProto.DataType of onnx.proto.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """An element type.

    `code` is ONNX's TensorProto.DataType; `bits` the element's size in a buffer and in numpy; `wgsl` the type that
    kernels compute in ("" = never on a device); `word` the WGSL element of the storage array; `js` the JavaScript
    array of host data; `own` the bits that tell values apart where these are fewer than `bits`.
    """

    name: str
    code: int
    bits: int
    wgsl: str = ""
    word: str = ""
    js: str = ""
    own: int = 0

    @property
    def on_device(self) -> bool:
        """Whether kernels exist for the type."""
        return bool(self.wgsl)

    @property
    def per_word(self) -> int:
        """Elements in one storage word (a word of int64 is vec2<u32>)."""
        return max(1, 32 // self.bits)

    @property
    def width(self) -> int:
        """The bits that tell values apart."""
        return self.own or self.bits

    def nbytes(self, elements: int) -> int:
        """Bytes that so many elements take in a buffer, without padding."""
        return (elements * self.bits + 7) // 8

    def packed_nbytes(self, elements: int) -> int:
        """Bytes that so many elements take in ONNX's raw_data, where elements of 2 and 4 bits share bytes."""
        return (elements * self.width + 7) // 8

    def __str__(self) -> str:
        return self.name


F32 = DType("float32", 1, 32, "f32", "f32", "Float32Array")
U8 = DType("uint8", 2, 8, "u32", "u32", "Uint8Array")
I8 = DType("int8", 3, 8, "i32", "u32", "Int8Array")
U16 = DType("uint16", 4, 16, "u32", "u32", "Uint16Array")
I16 = DType("int16", 5, 16, "i32", "u32", "Int16Array")
I32 = DType("int32", 6, 32, "i32", "i32", "Int32Array")
I64 = DType("int64", 7, 64, "vec2<u32>", "vec2<u32>", "BigInt64Array")
STRING = DType("string", 8, 0)
BOOL = DType("bool", 9, 8, "bool", "u32", "Uint8Array")
F16 = DType("float16", 10, 16, "f32", "u32", "Uint16Array")
F64 = DType("float64", 11, 64, "", "", "Float64Array")
U32 = DType("uint32", 12, 32, "u32", "u32", "Uint32Array")
U64 = DType("uint64", 13, 64, "vec2<u32>", "vec2<u32>", "BigUint64Array")
BF16 = DType("bfloat16", 16, 16, "f32", "u32", "Uint16Array")

F8E4M3FN = DType("float8e4m3fn", 17, 8, "f32", "u32", "Uint8Array")
F8E4M3FNUZ = DType("float8e4m3fnuz", 18, 8, "f32", "u32", "Uint8Array")
F8E5M2 = DType("float8e5m2", 19, 8, "f32", "u32", "Uint8Array")
F8E5M2FNUZ = DType("float8e5m2fnuz", 20, 8, "f32", "u32", "Uint8Array")
U4 = DType("uint4", 21, 8, "u32", "u32", "Uint8Array", 4)
I4 = DType("int4", 22, 8, "i32", "u32", "Uint8Array", 4)
F4E2M1 = DType("float4e2m1", 23, 8, "f32", "u32", "Uint8Array", 4)
F8E8M0 = DType("float8e8m0", 24, 8, "f32", "u32", "Uint8Array")
U2 = DType("uint2", 25, 8, "u32", "u32", "Uint8Array", 2)
I2 = DType("int2", 26, 8, "i32", "u32", "Uint8Array", 2)

DTYPES: tuple[DType, ...] = (
    F32, U8, I8, U16, I16, I32, I64, STRING, BOOL, F16, F64, U32, U64, DType("complex64", 14, 64),
    DType("complex128", 15, 128), BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, U4, I4, F4E2M1, F8E8M0, U2, I2,
)  # fmt: skip
BY_CODE: dict[int, DType] = {d.code: d for d in DTYPES}
BY_NAME: dict[str, DType] = {d.name: d for d in DTYPES}

FLOATS = frozenset({F32, F16, BF16})
INTS32 = frozenset({I8, I16, I32, U8, U16, U32})
INTS64 = frozenset({I64, U64})
SIGNED = frozenset({I8, I16, I32, I64, I4, I2})
FLOATS8 = frozenset({F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ})
SMALL_FLOATS = frozenset({*FLOATS8, F4E2M1, F8E8M0})
SMALL_INTS = frozenset({U4, I4, U2, I2})
SMALL = SMALL_FLOATS | SMALL_INTS
"""Types that operators convert from and to, and move, but do not compute in; numpy has them from ml_dtypes only."""
