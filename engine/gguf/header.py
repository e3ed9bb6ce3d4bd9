"""Read the header of one GGUF file: metadata and the table of tensors, each value checked before it is used.

Between `mapped` (bytes) and `reader` (the file as a whole). Nothing here trusts a number from the file: a count or a
length is held against the bytes that are left before memory is taken for it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from cext.scan import scan_strings
from engine.errors import GGUFFormatError, UnsupportedQuantError
from engine.gguf.mapped import MappedFile
from engine.gguf.quants import block_size
from engine.gguf.values import SCALAR_DTYPES, GGUFValue, StringArray, ValueType
from engine.types import QuantType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_KEYS = 65_536
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 65_535
MAX_STRING_BYTES = 1 << 26
MAX_ITEMS = 1 << 24
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
"""Limits. Source: GGUF specification (key length, dims). The others are ours, far above any model's: they keep what a
hostile header can make of a large (or sparse) file small."""

_KEY_VALUE_MIN_BYTES = 8 + 1 + 4 + 1
_TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and what it is.

    Attributes:
        name: GGUF name, "blk.0.attn_q.weight".
        type: how its values are packed.
        shape: slowest axis first, a weight is [n_out, n_in] (GGUF's `ne` is the reverse).
        offset: of its first byte in the file of its part.
        nbytes: bytes it takes.
        n_elements: values.
        part: index into `GGUFFile.paths`.
    """

    name: str
    type: QuantType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    n_elements: int
    part: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of one file says.

    Attributes:
        version: 2 or 3.
        alignment: of tensors, bytes.
        metadata: in file order.
        tensors: in file order.
        data_start: byte offset of the first tensor's place.
    """

    version: int
    alignment: int
    metadata: dict[str, GGUFValue]
    tensors: dict[str, TensorInfo]
    data_start: int


def read_header(file: MappedFile, part: int = 0) -> Header:
    """Parse and check the header of a mapped file.

    Raises: GGUFFormatError: with the field and its offset. UnsupportedQuantError: a tensor of a type not known.
    Thread: any.
    Source: GGUF specification, "File structure".
    """
    cursor = _Cursor(file)
    version = _read_version(cursor)
    n_tensors = cursor.count("tensor_count", _TENSOR_MIN_BYTES, MAX_TENSORS)
    n_kv = cursor.count("metadata_kv_count", _KEY_VALUE_MIN_BYTES, MAX_KEYS)
    metadata: dict[str, GGUFValue] = {}
    for i in range(n_kv):
        at = cursor.position
        key = cursor.key(f"key of metadata {i}")
        if key in metadata:
            cursor.fail(f"kv '{key}'", at, "appears twice")
        metadata[key] = _read_value(cursor, f"kv '{key}'")
    alignment = _alignment(cursor, metadata)
    entries = [_read_tensor_info(cursor, i, part) for i in range(n_tensors)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors = _place_tensors(cursor, entries, data_start, alignment)
    return Header(version, alignment, metadata, tensors, data_start)


class _Cursor:
    """A position in the file's bytes; every read is checked against the end."""

    def __init__(self, file: MappedFile) -> None:
        self.file, self.data, self.size = file, file.data, file.size
        self.view = self.data.data
        self.position = 0

    def fail(self, field: str, offset: int, reason: str) -> NoReturn:
        raise GGUFFormatError(self.file.path, field, offset, reason)

    def take(self, n_bytes: int, field: str) -> int:
        """Step over n bytes that are there; answers where they start."""
        start = self.position
        if n_bytes > self.size - start:
            self.fail(field, start, f"{n_bytes:,} bytes needed, {self.size - start:,} left in the file")
        self.position = start + n_bytes
        return start

    def u32(self, field: str) -> int:
        return int(_U32.unpack_from(self.view, self.take(4, field))[0])

    def u64(self, field: str) -> int:
        return int(_U64.unpack_from(self.view, self.take(8, field))[0])

    def count(self, field: str, min_bytes: int, limit: int) -> int:
        """A 64-bit count of things of at least min_bytes each."""
        at = self.position
        count = self.u64(field)
        room = (self.size - self.position) // min_bytes
        if count > min(limit, room):
            most = f"at most {limit:,} are read" if limit < room else f"the file has room for {room:,}"
            self.fail(field, at, f"{count:,} of them, {most}")
        return count

    def raw_string(self, field: str) -> bytes:
        at = self.position
        length = self.u64(f"length of {field}")
        start = self.take(length, field)
        if length > MAX_STRING_BYTES:
            self.fail(f"length of {field}", at, f"{length:,} bytes, at most {MAX_STRING_BYTES:,} are read")
        return bytes(self.view[start : start + length])

    def key(self, field: str) -> str:
        """A key or tensor name: not empty, not absurdly long, UTF-8, without control characters."""
        at = self.position
        length = self.u64(f"length of {field}")
        if not 0 < length <= MAX_KEY_BYTES:
            self.fail(f"length of {field}", at, f"{length:,} bytes, expected 1 to {MAX_KEY_BYTES:,}")
        start = self.take(length, field)
        try:
            text = str(self.view[start : self.position], "utf-8")
        except UnicodeDecodeError as error:
            raise GGUFFormatError(self.file.path, field, start + error.start, "is not valid UTF-8") from error
        if not text.isprintable():
            self.fail(field, start, "holds control characters")
        return text


_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def _read_version(cursor: _Cursor) -> int:
    magic = bytes(cursor.view[: len(MAGIC)])
    if magic != MAGIC:
        cursor.fail("magic", 0, f"is {magic!r}, not {MAGIC!r}: not a GGUF file")
    cursor.take(len(MAGIC), "magic")
    version = cursor.u32("version")
    if version & 0xFFFF == 0 and version:
        cursor.fail("version", 4, "the file is big-endian, which is not supported")
    if version not in VERSIONS:
        cursor.fail("version", 4, f"version {version} is not supported, only 2 and 3")
    return version


def _read_value(cursor: _Cursor, field: str) -> GGUFValue:
    value_type = _read_value_type(cursor, f"type of {field}")
    if value_type is ValueType.ARRAY:
        return _read_array(cursor, field)
    if value_type is ValueType.STRING:
        # A value's text may be in any encoding that its author thought was UTF-8; it is shown, not compared.
        return cursor.raw_string(field).decode("utf-8", errors="replace")
    dtype = SCALAR_DTYPES[value_type]
    start = cursor.take(dtype.itemsize, field)
    if value_type is ValueType.BOOL:
        byte = cursor.view[start]
        if byte > 1:
            cursor.fail(field, start, f"a bool of value {byte}")
        return bool(byte)
    number: int | float = np.frombuffer(cursor.data, dtype=dtype, count=1, offset=start)[0].item()
    return number


def _read_value_type(cursor: _Cursor, field: str) -> ValueType:
    at = cursor.position
    number = cursor.u32(field)
    try:
        return ValueType(number)
    except ValueError as error:
        raise GGUFFormatError(cursor.file.path, field, at, f"value type {number} is not known") from error


def _read_array(cursor: _Cursor, field: str) -> GGUFValue:
    at = cursor.position
    item_type = _read_value_type(cursor, f"item type of {field}")
    if item_type is ValueType.ARRAY:
        cursor.fail(f"item type of {field}", at, "arrays of arrays are not supported")
    is_string = item_type is ValueType.STRING
    item_bytes = 8 if is_string else SCALAR_DTYPES[item_type].itemsize
    n_items = cursor.count(f"length of {field}", item_bytes, MAX_ITEMS)
    if is_string:
        return _read_strings(cursor, field, n_items)
    dtype = SCALAR_DTYPES[item_type]
    start = cursor.take(n_items * item_bytes, field)
    if item_type is ValueType.BOOL and n_items and cursor.data[start : cursor.position].max() > 1:
        cursor.fail(field, start, "an array of bools holds other values than 0 and 1")
    # A copy: the map may be neither aligned for the type nor there for as long as the metadata.
    items = np.frombuffer(cursor.data, dtype=dtype, count=n_items, offset=start).copy()
    items.flags.writeable = False
    return items


def _read_strings(cursor: _Cursor, field: str, n_items: int) -> StringArray:
    begin = cursor.position
    end, offsets, lengths = scan_strings(cursor.data, begin, n_items)
    if end < 0:
        i = -1 - end
        at = begin + (int(offsets[i - 1] + lengths[i - 1]) if i else 0)
        cursor.fail(f"string {i} of {field}", at, "does not lie within the file")
    cursor.position = end
    return StringArray(cursor.data[begin:end], offsets, lengths)


def _alignment(cursor: _Cursor, metadata: dict[str, GGUFValue]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or not 8 <= value <= MAX_ALIGNMENT or value % 8:
        raise GGUFFormatError(
            cursor.file.path, "kv 'general.alignment'", -1, f"is {value!r}, not a multiple of 8 up to {MAX_ALIGNMENT:,}"
        )
    return value


def _read_tensor_info(cursor: _Cursor, index: int, part: int) -> tuple[TensorInfo, int]:
    """One entry of the table, its offset still counted from the start of the data; and where that offset stands."""
    name = cursor.key(f"name of tensor {index}")
    field = f"tensor '{name}'"
    at = cursor.position
    n_dims = cursor.u32(f"n_dims of {field}")
    if not 1 <= n_dims <= MAX_DIMS:
        cursor.fail(f"n_dims of {field}", at, f"{n_dims:,} dimensions, expected 1 to {MAX_DIMS}")
    at = cursor.position
    ne = [cursor.u64(f"dimension {i} of {field}") for i in range(n_dims)]
    if 0 in ne:
        cursor.fail(f"dimension {ne.index(0)} of {field}", at + 8 * ne.index(0), "is zero")
    n_elements = math.prod(ne)
    at_type = cursor.position
    quant_type = _read_quant_type(cursor, name)
    n_per_block, block_bytes = block_size(quant_type)
    if ne[0] % n_per_block:
        cursor.fail(
            f"dimension 0 of {field}", at, f"{ne[0]:,} is no multiple of {quant_type.name}'s block of {n_per_block}"
        )
    nbytes = n_elements // n_per_block * block_bytes
    if nbytes > cursor.size:
        cursor.fail(field, at_type, f"{nbytes:,} bytes of values, more than the whole file")
    offset = cursor.u64(f"offset of {field}")
    return TensorInfo(name, quant_type, tuple(reversed(ne)), offset, nbytes, n_elements, part), cursor.position - 8


def _read_quant_type(cursor: _Cursor, tensor: str) -> QuantType:
    number = cursor.u32(f"type of tensor '{tensor}'")
    try:
        return QuantType(number)
    except ValueError as error:
        raise UnsupportedQuantError(f"number {number}", tensor, cursor.file.path) from error


def _place_tensors(
    cursor: _Cursor, entries: list[tuple[TensorInfo, int]], data_start: int, alignment: int
) -> dict[str, TensorInfo]:
    """Check that tensors have names of their own and lie apart from each other within the file."""
    placed: dict[str, TensorInfo] = {}
    for info, at in entries:
        field = f"offset of tensor '{info.name}'"
        if info.name in placed:
            cursor.fail(f"tensor '{info.name}'", at, "appears twice")
        if info.offset % alignment:
            cursor.fail(field, at, f"{info.offset:,} is no multiple of the alignment {alignment}")
        end = data_start + info.offset + info.nbytes
        if end > cursor.size:
            cursor.fail(field, at, f"its values would end at byte {end:,} of a file of {cursor.size:,}")
        placed[info.name] = replace(info, offset=data_start + info.offset)
    behind = data_start
    for info, at in sorted(entries, key=lambda entry: entry[0].offset):
        if data_start + info.offset < behind:
            cursor.fail(f"offset of tensor '{info.name}'", at, "its values overlap those of another tensor")
        behind = data_start + info.offset + info.nbytes
    return placed
