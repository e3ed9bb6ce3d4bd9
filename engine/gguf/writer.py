"""Write a GGUF file: version 3, little-endian, under a temporary name that becomes the file when all is on the disk.

Used to convert and craft models, and by tests; nothing on the way from prompt to text writes a model.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from engine.errors import ParamError
from engine.gguf.header import DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_DIMS, MAX_KEY_BYTES
from engine.gguf.quants import tensor_bytes
from engine.gguf.values import SCALAR_DTYPES, StringArray, ValueType
from engine.io import atomic_write
from engine.types import QuantType

WriteValue = (
    bool | int | float | str | npt.NDArray[np.generic] | StringArray
    | Sequence[str] | Sequence[bytes] | Sequence[int] | Sequence[float]
)  # fmt: skip
"""What `GGUFWriter.add` takes."""

_U32 = struct.Struct("<I")
_ARRAY = struct.Struct("<IIQ")
_INT_TYPES = (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64)


class GGUFWriter:
    """Collects metadata and tensors, then writes them in one go.

    Attributes:
        path: where the file will be.
    """

    def __init__(self, path: str | os.PathLike[str], arch: str, alignment: int = DEFAULT_ALIGNMENT) -> None:
        """Start a file.

        Args:
            path: replaced by `write()` if it exists.
            arch: `general.architecture`.
            alignment: of tensors in bytes; a multiple of 8.
        """
        if alignment % 8 or not 8 <= alignment <= MAX_ALIGNMENT:
            raise ParamError(f"alignment {alignment} is no multiple of 8 up to {MAX_ALIGNMENT}")
        self.path = Path(path)
        self._alignment = alignment
        self._values: dict[str, bytes] = {}
        self._tensors: dict[str, tuple[QuantType, tuple[int, ...], npt.NDArray[np.uint8]]] = {}
        self.add("general.architecture", arch)
        if alignment != DEFAULT_ALIGNMENT:
            self.add("general.alignment", alignment, ValueType.UINT32)

    def add(self, key: str, value: WriteValue, value_type: ValueType | None = None) -> None:
        """Add a metadata value.

        Args:
            key: not used before; up to 65,535 bytes of UTF-8.
            value: sequences become arrays. Integers become UINT32, or INT32, UINT64 or INT64 where that does not hold
                them; floats FLOAT32; numpy arrays keep their type.
            value_type: the type to write instead; of the items, for an array.
        Raises: ParamError: where the key is taken or too long, or the value does not fit the type.
        """
        name = key.encode()
        if key in self._values or not 0 < len(name) <= MAX_KEY_BYTES:
            raise ParamError(f"key '{key:.100}' is taken, empty or too long")
        self._values[key] = _string(name) + _value(value, value_type)

    def add_tensor(
        self, name: str, quant_type: QuantType, data: npt.NDArray[np.generic], shape: tuple[int, ...] | None = None
    ) -> None:
        """Add a tensor.

        Args:
            name: not used before.
            quant_type: how data is packed.
            data: the tensor's blocks, any dtype and shape of the right number of bytes; kept until `write()`.
            shape: slowest axis first; data's own where it is left out.
        Raises: ParamError: where the name is taken, or data does not fit type and shape.
        """
        shape = data.shape if shape is None else shape
        if name in self._tensors or not name:
            raise ParamError(f"tensor name '{name}' is taken or empty")
        if not 1 <= len(shape) <= MAX_DIMS or min(shape) < 1:
            raise ParamError(f"tensor '{name}' has shape {shape}; 1 to {MAX_DIMS} axes of at least 1 can be written")
        try:
            expected = tensor_bytes(quant_type, shape)
        except ValueError as error:
            raise ParamError(f"tensor '{name}': {error}") from error
        if data.nbytes != expected:
            raise ParamError(f"tensor '{name}' has {data.nbytes} bytes, {expected} expected for {shape}")
        packed = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._tensors[name] = (quant_type, shape, packed)

    def write(self) -> None:
        """Write the file, flush it to the disk and give it its name. On any failure the old file stays.

        Raises: OSError: as the system gives it.
        """
        with atomic_write(self.path) as file:
            self._write_to(file)

    def _write_to(self, file: BinaryIO) -> None:
        file.write(MAGIC + struct.pack("<IQQ", 3, len(self._tensors), len(self._values)))
        for entry in self._values.values():
            file.write(entry)
        offset = 0
        for name, (quant_type, shape, data) in self._tensors.items():
            file.write(_string(name.encode()) + struct.pack("<I", len(shape)))
            file.write(struct.pack(f"<{len(shape)}QIQ", *reversed(shape), quant_type, offset))
            offset += data.nbytes + -data.nbytes % self._alignment
        for _, _, data in self._tensors.values():
            file.write(bytes(-file.tell() % self._alignment))
            file.write(data.data)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _value(value: WriteValue, value_type: ValueType | None) -> bytes:
    if isinstance(value, str):
        return _U32.pack(ValueType.STRING) + _string(value.encode())
    if isinstance(value, StringArray) or (isinstance(value, Sequence) and value and isinstance(value[0], str | bytes)):
        return _string_array(value)
    items = np.asarray(value)
    if items.ndim > 1 or items.dtype.kind not in "buif":
        raise ParamError(f"a metadata value of {items.ndim} axes of {items.dtype} cannot be written")
    if value_type is None:
        value_type = _type_of(items, keep=isinstance(value, np.ndarray))
    packed = _numbers(items, value_type)
    if items.ndim == 0:
        return _U32.pack(value_type) + packed
    return _ARRAY.pack(ValueType.ARRAY, value_type, len(items)) + packed


def _string_array(strings: Iterable[object]) -> bytes:
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in strings]
    return _ARRAY.pack(ValueType.ARRAY, ValueType.STRING, len(texts)) + b"".join(map(_string, texts))


def _type_of(items: npt.NDArray[np.generic], *, keep: bool) -> ValueType:
    """The type of a numpy array (keep), or a fitting one for Python's numbers."""
    if items.dtype.kind == "b":
        return ValueType.BOOL
    if items.size == 0 and not keep:
        return ValueType.INT32
    if items.dtype.kind == "f" and not keep:
        return ValueType.FLOAT32
    for value_type, dtype in SCALAR_DTYPES.items():
        if keep and dtype == items.dtype.newbyteorder("<"):
            return value_type
    if keep:
        raise ParamError(f"an array of {items.dtype} has no type in GGUF")
    return next(t for t in _INT_TYPES if _holds(t, items))


def _holds(value_type: ValueType, items: npt.NDArray[np.generic]) -> bool:
    """Whether every integer fits the type."""
    limits = np.iinfo(SCALAR_DTYPES[value_type].str)
    return limits.min <= int(items.min()) and int(items.max()) <= limits.max


def _numbers(items: npt.NDArray[np.generic], value_type: ValueType) -> bytes:
    dtype = SCALAR_DTYPES.get(value_type)
    if dtype is None:
        raise ParamError(f"numbers cannot be written as {value_type.name}")
    if dtype.kind in "iu" and items.size and (items.dtype.kind not in "iu" or not _holds(value_type, items)):
        raise ParamError(f"values do not fit {value_type.name}")
    with np.errstate(over="ignore"):
        return items.astype(dtype).tobytes()
