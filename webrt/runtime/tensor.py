"""Device tensors, and the only conversions between host arrays and the bytes of a buffer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from webrt import known
from webrt.dtypes import BF16, BOOL, BY_NAME, SMALL, STRING, DType
from webrt.errors import DeviceError, InputError, UnsupportedType
from webrt.plan import Bytes
from webrt.runtime.device import Buffer, DeviceMemory, Range, padded

Array: TypeAlias = Any
HostValue: TypeAlias = Any
"""A numpy array, a list (sequence), a dict (map), or None."""

# ml_dtypes writes underscores and, for two types, longer names than ONNX.
_FROM_NUMPY = {"float4e2m1fn": "float4e2m1", "float8e8m0fnu": "float8e8m0"}
_ML_DTYPES = {"float4e2m1": "float4_e2m1fn", "float8e8m0": "float8_e8m0fnu"}


class Tensor:
    """A tensor in device memory. It owns its buffer: `close()`, the end of a `with` block, or its last use frees it."""

    def __init__(
        self,
        device: DeviceMemory,
        buffer: Buffer,
        dtype: DType,
        shape: Sequence[int],
        give_back: Callable[[Buffer], None] | None = None,
    ) -> None:
        """`give_back` takes the buffer at the end; by default the device frees it."""
        self.device, self.dtype, self.shape = device, dtype, tuple(shape)
        self._buffer: Buffer | None = buffer
        self._give_back = give_back or device.free

    @classmethod
    def from_numpy(cls, array: Array, device: DeviceMemory) -> Tensor:
        """A copy of a host array on `device`. Raises UnsupportedType for types that devices do not hold."""
        values = _to_array(array)
        tensor = cls.empty(_device_dtype(dtype_name(values)), values.shape, device)
        upload(device, tensor.buffer, to_bytes(values))
        return tensor

    @classmethod
    def empty(cls, dtype: DType, shape: Sequence[int], device: DeviceMemory) -> Tensor:
        """A tensor of zeros. Raises InputError where `device` is none."""
        if not hasattr(device, "alloc"):
            raise InputError(f"a tensor is made on the device of a session: pass session.device, not {device!r}")
        nbytes = dtype.nbytes(math.prod(shape))
        return cls(device, device.alloc(nbytes, "tensor"), dtype, shape)

    @property
    def buffer(self) -> Buffer:
        """The tensor's memory. Raises DeviceError once it is closed."""
        if self._buffer is None:
            raise DeviceError("the device tensor was closed")
        return self._buffer

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without the buffer's padding."""
        return self.dtype.nbytes(math.prod(self.shape))

    def numpy(self) -> Array:
        """The elements on the host."""
        (data,) = self.device.read([Range(self.buffer, 0, self.nbytes)])
        return from_bytes(data, self.dtype, self.shape)

    def close(self) -> None:
        """Frees the memory; may be called again."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._give_back(buffer)

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_buffer", None) is not None:
            self.close()

    def __repr__(self) -> str:
        where = "closed" if self._buffer is None else self.device.target.name
        return f"Tensor({self.dtype}[{','.join(map(str, self.shape))}] on {where})"


def upload(device: DeviceMemory, buffer: Buffer, data: Bytes, offset: int = 0) -> None:
    """Writes a tensor's bytes, followed by zeros up to a multiple of 16."""
    view = memoryview(data).cast("B")
    whole = len(view) & ~15
    if whole:
        device.write(buffer, offset, view[:whole])
    if whole < len(view):
        device.write(buffer, offset + whole, bytes(view[whole:]).ljust(padded(len(view) - whole), b"\0"))


def host_value(name: str, value: HostValue, dtype: str) -> HostValue:
    """A feed as the host keeps it: an array of native byte order, or a sequence or map as it is.

    `dtype` is the expected element type, "" where the value is no tensor. Python's numbers and lists of them become
    arrays, as in numpy. Raises InputError, which names the expected type, for anything else, and UnsupportedType where
    there are no arrays of the type.
    """
    if not dtype or dtype not in BY_NAME:
        return value
    array = value
    if isinstance(value, known.PYTHON):
        array = known.of_python(name, value, numpy_dtype(BY_NAME[dtype]), dtype)
    if not hasattr(array, "__array__"):
        raise InputError(f"input {name!r} is a {type(value).__name__}; a numpy array of {dtype} is expected")
    array = _to_array(array)
    have = dtype_name(array)
    if have != dtype:
        numpy_dtype(BY_NAME[dtype])
        raise InputError(f"input {name!r} is {have}; {dtype} is expected: use .astype")
    if dtype == "string" and array.dtype.kind != "O":
        return _texts(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def dtype_name(array: Array) -> str:
    """The name in webrt.dtypes of an array's element type, or numpy's own where there is none."""
    if array.dtype.kind in "OUST":
        return "string"
    plain = str(array.dtype.name).replace("_", "")
    return _FROM_NUMPY.get(plain, plain)


def shape_of(value: HostValue) -> tuple[int, ...] | None:
    """An array's shape; None for what is no tensor."""
    return tuple(value.shape) if hasattr(value, "shape") else None


def integers(array: Array) -> list[int]:
    """The elements of an integer or bool array, in C order."""
    return [int(x) for x in array.reshape(-1)]


def to_bytes(array: Array) -> memoryview:
    """An array's bytes as a buffer holds them: C order, little endian. Does not copy where they are so already."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.byteorder == ">" or (flat.dtype.byteorder == "=" and not np.little_endian):
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    return flat.view(np.uint8).data


def from_bytes(data: Bytes, dtype: DType, shape: Sequence[int]) -> Array:
    """The array that a buffer's bytes are; shares memory with `data`. Raises UnsupportedType as `numpy_dtype` does."""
    import numpy as np

    return np.frombuffer(data, dtype=np.uint8).view(numpy_dtype(dtype)).reshape(shape)


def from_integers(values: Sequence[int], dtype: DType, shape: Sequence[int]) -> Array:
    """An array of integers."""
    import numpy as np

    return np.array(values, dtype=numpy_dtype(dtype)).reshape(shape)


def numpy_dtype(dtype: DType) -> Any:
    """numpy's type. Types that numpy lacks come from ml_dtypes; raises UnsupportedType where that is not installed."""
    import numpy as np

    if dtype == STRING:
        return np.dtype(object)
    if dtype == BOOL:
        return np.dtype(np.bool_)
    if dtype != BF16 and dtype not in SMALL and hasattr(np, dtype.name):
        return np.dtype(dtype.name).newbyteorder("<")
    try:
        import ml_dtypes
    except ImportError as e:
        raise UnsupportedType(f"arrays of {dtype} need the package ml_dtypes; run: pip install ml_dtypes") from e
    name = _ML_DTYPES.get(dtype.name, dtype.name.replace("float8", "float8_"))
    found = np.dtype(getattr(ml_dtypes, name, np.void))
    if found.names or found == np.void:
        raise UnsupportedType(f"arrays of {dtype} need the real package ml_dtypes, which is not here")
    return found


def copy(value: HostValue) -> HostValue:
    """A value that shares no memory with this one, all the way down."""
    if isinstance(value, list):
        return [copy(v) for v in value]
    if isinstance(value, dict):
        return {k: copy(v) for k, v in value.items()}
    return value.copy() if hasattr(value, "copy") else value


def _device_dtype(name: str) -> DType:
    found = BY_NAME.get(name)
    if found is None or not found.on_device:
        raise UnsupportedType(f"devices do not hold {name}; keep the value on the host")
    return found


def _to_array(value: Any) -> Array:
    import numpy as np

    return np.asarray(value)


def _texts(array: Array) -> Array:
    """Arrays of fixed-width text or UTF-8 bytes as arrays of str."""
    import numpy as np

    return (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array).astype(object)
