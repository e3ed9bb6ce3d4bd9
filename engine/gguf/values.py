"""Metadata values: their types in the file, and arrays of strings that are only looked at on demand.

Used by the reader (`header`), the writer, and the tokenizers, whose vocabularies are `StringArray`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import overload

import numpy as np
import numpy.typing as npt

from engine.types import U8Array


class ValueType(IntEnum):
    """Types of metadata values by their GGUF numbers. Source: GGUF specification, `gguf_metadata_value_type`."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


SCALAR_DTYPES: dict[ValueType, np.dtype[np.generic]] = {
    ValueType.UINT8: np.dtype("<u1"),
    ValueType.INT8: np.dtype("<i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("?"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}
"""Types of fixed size."""


class StringArray(Sequence[bytes]):
    """Strings that lie in one blob; a string becomes a Python object only when it is asked for.

    Attributes:
        blob: u8[n_bytes], read only; may be a view into the mapped file.
        offsets: u64[n], where each string starts in the blob.
        lengths: u64[n], bytes of each string; offsets + lengths lie within the blob.
    """

    __slots__ = ("blob", "lengths", "offsets")

    def __init__(self, blob: U8Array, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]) -> None:
        self.blob, self.offsets, self.lengths = blob, offsets, lengths

    @classmethod
    def from_strings(cls, strings: Sequence[bytes]) -> StringArray:
        """Copy strings into a blob of their own."""
        lengths = np.fromiter(map(len, strings), dtype=np.uint64, count=len(strings))
        offsets = np.cumsum(lengths, dtype=np.uint64) - lengths
        return cls(np.frombuffer(b"".join(strings), dtype=np.uint8), offsets, lengths)

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> StringArray: ...
    def __getitem__(self, index: int | slice) -> bytes | StringArray:
        if isinstance(index, slice):
            return StringArray(self.blob, self.offsets[index], self.lengths[index])
        start, length = int(self.offsets[index]), int(self.lengths[index])
        return self.blob[start : start + length].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        blob = self.blob.tobytes()
        for start, length in zip(self.offsets.tolist(), self.lengths.tolist(), strict=True):
            yield blob[start : start + length]

    def __repr__(self) -> str:
        return f"StringArray({len(self)} strings)"


GGUFValue = int | float | bool | str | npt.NDArray[np.generic] | StringArray
"""A metadata value: arrays of numbers and bools are numpy arrays, read only."""
