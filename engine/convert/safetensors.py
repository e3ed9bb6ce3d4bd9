"""Read a safetensors file: every length and offset is checked before a byte is used.

    u64 n | n bytes of JSON: name -> dtype, shape, data_offsets [begin, end) | the data

Source: huggingface/safetensors, README.md, "Format".
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from engine.errors import GGUFFormatError
from engine.gguf.mapped import MappedFile
from engine.types import QuantType, U8Array

MAX_HEADER_BYTES = 100_000_000
"""Source: the format's own limit."""
MAX_AXES = 4  # what GGUF can write
_TYPES = {"F32": (QuantType.F32, 4), "F16": (QuantType.F16, 2), "BF16": (QuantType.BF16, 2), "I64": (QuantType.I64, 8)}


class SafetensorsFile:
    """Tensors of a file, mapped.

    Attributes:
        path: the file.
        tensors: by name: its type, its shape (slowest axis first) and its bytes u8[n].
    """

    def __init__(self, path: Path) -> None:
        """Open it. Raises: GGUFFormatError: damaged, or with a type that is not known."""
        self.path = path
        self._map = MappedFile(path)
        try:
            self.tensors = self._read()
        except BaseException:
            self._map.close()
            raise

    def close(self) -> None:
        """Unmap it, as soon as nobody holds a tensor."""
        self.tensors.clear()
        self._map.close()

    def _read(self) -> dict[str, tuple[QuantType, tuple[int, ...], U8Array]]:
        data = self._map.data
        n_header = int.from_bytes(data[:8].tobytes(), "little")
        if len(data) < 8 or not 2 <= n_header <= min(MAX_HEADER_BYTES, len(data) - 8):
            raise GGUFFormatError(self.path, "header", 0, f"{n_header:,} bytes do not fit {len(data):,}")
        try:
            header = json.loads(data[8 : 8 + n_header].tobytes())
        except (ValueError, RecursionError) as error:
            raise GGUFFormatError(self.path, "header", 8, f"no JSON: {error}") from error
        if not isinstance(header, dict):
            raise GGUFFormatError(self.path, "header", 8, "is no object")
        body = data[8 + n_header :]
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: self._tensor(name, entry, body) for name, entry in entries.items()}

    def _tensor(self, name: str, entry: object, body: U8Array) -> tuple[QuantType, tuple[int, ...], U8Array]:
        match entry:
            case {"dtype": str(dtype), "shape": [*axes], "data_offsets": [int(begin), int(end)]}:
                pass
            case _:
                raise GGUFFormatError(self.path, f"tensor '{name:.100}'", -1, "has no dtype, shape and data_offsets")
        shape = tuple(axis for axis in axes if isinstance(axis, int) and 0 < axis < 2**31)
        if dtype not in _TYPES or len(shape) != len(axes) or len(shape) > MAX_AXES:
            raise GGUFFormatError(self.path, f"tensor '{name:.100}'", -1, f"{dtype} {axes} is not supported")
        quant, item_bytes = _TYPES[dtype]
        if not 0 <= begin <= end <= len(body) or end - begin != item_bytes * math.prod(shape):
            raise GGUFFormatError(
                self.path, f"tensor '{name:.100}'", begin, f"bytes {begin:,} to {end:,} do not hold {dtype} {axes}"
            )
        return quant, shape, body[begin:end]
