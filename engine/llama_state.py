"""Session files and sequence files of llama.cpp, read into the blocks of a saved state of ours.

Stands before `engine.state`, which loads the result like any other state: checked, staged, then swapped in.

    ggsn  u32 magic, u32 version (9, 10) | u32 n, i32 tokens[n] | u32 n, architecture | version 9: outputs | MEM
    ggsq  u32 magic, u32 version (2, 3) | u32 n, i32 tokens[n] | MEM of one sequence
    MEM   for each cache: u32 n_stream (not in the oldest files of versions 9 and 2) | for each stream: u32 n_cell |
          if there are any: cells | u32 v_trans | u32 n_layer | K of each layer | V of each layer

Source: llama.cpp, llama_context::state_write_data and llama_kv_cache::state_write; versions: llama.h.
"""

from __future__ import annotations

import struct

import numpy as np

from engine.batch import on_every_axis
from engine.errors import ParamError, StateFileError, StateMismatchError, StateVersionError
from engine.io import BlockWriter
from engine.memory import KVCache, KVLayout, LayerKV, Memory
from engine.memory.kv_rows import RowMatrix, RowStore, write_row_stores
from engine.types import I32Array, QuantType, U8Array

_VERSIONS = {b"nsgg": (9, 10), b"qsgg": (2, 3)}
"""Versions read, by the first four bytes of a file: 'ggsn' and 'ggsq' as little-endian numbers."""

_CELL = struct.Struct("<iI")
_CELL_EXT = struct.Struct("<iii")  # x: column, y: row, token; those of a model without images are 0, 0


_EXPONENTS = {
    QuantType.F32: np.array(0x7F800000, "<u4"),
    QuantType.F16: np.array(0x7C00, "<u2"),
    QuantType.BF16: np.array(0x7F80, "<u2"),
}
"""The bits of each type's exponent, which are all set where a number is not finite."""


def is_llama_state(head: bytes) -> bool:
    """Whether a file that begins like this is one of llama.cpp's."""
    return head[:4] in _VERSIONS


class LlamaState:
    """A file of llama.cpp, for a memory of the same model.

    Args:
        data: the file.
        arch: the model's architecture, which session files name.
        memory: what it will be loaded into.
        name: for messages.

    Attributes:
        tokens: i32[n], the tokens that stand beside the memory.

    Raises: StateFileError kinds.
    """

    def __init__(self, data: bytes, arch: str, memory: Memory, name: object = "") -> None:
        if not isinstance(memory, KVCache):
            raise StateMismatchError(f"files of llama.cpp are not read into a {type(memory).__name__}", name)
        source = _Source(data, name)
        magic = source.take(4)
        if magic not in _VERSIONS:
            raise source.error("no file of llama.cpp")
        version = source.u32()
        if version not in _VERSIONS[magic]:
            raise StateVersionError(f"version {version} of llama.cpp's format is not read by this engine", name)
        self.tokens: I32Array = source.i32s(source.u32())
        self._is_full = magic == b"nsgg"
        if self._is_full:
            found = source.take(source.u32()).decode(errors="replace")
            if found != arch:
                raise StateMismatchError(
                    f"made with a model of architecture '{found[:80]}', this one is '{arch}'", name
                )
            if version == 9:
                _skip_outputs(source)
        self._fingerprint = memory.content_fingerprint
        self._stores = _read_caches(source, memory, is_newest=version in (3, 10), is_full=self._is_full)

    def save(self, writer: BlockWriter, seq_id: int | None = None) -> None:
        """Write the blocks that the memory loads; one sequence or all, whichever the file has."""
        write_row_stores(writer, self._fingerprint, self._stores, is_full=self._is_full)


class _Source:
    """Numbers of a file in order, never past its end."""

    def __init__(self, data: bytes, name: object) -> None:
        self.data, self.name, self.at = data, name, 0

    def error(self, reason: str) -> StateFileError:
        return StateFileError(reason, self.name)

    @property
    def n_left(self) -> int:
        return len(self.data) - self.at

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > self.n_left:
            raise self.error(f"{n_bytes:,} bytes are needed where {self.n_left:,} are left")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def i32s(self, n: int) -> I32Array:
        return np.frombuffer(self.take(4 * n), "<i4").astype(np.int32)


def _skip_outputs(source: _Source) -> None:
    """Version 9 keeps the outputs of the last batch: which, logits, hidden rows."""
    source.take(4 * source.u32())
    source.take(4 * source.u64())
    source.take(4 * source.u64())


def _read_caches(source: _Source, cache: KVCache, *, is_newest: bool, is_full: bool) -> list[RowStore]:
    """All that is left, which must be used up: cells of image models have more numbers, old files no streams."""
    begin = source.at
    first_error: StateFileError | None = None
    for has_streams, n_ext_bytes in ((True, 0), (True, _CELL_EXT.size)) if is_newest else ((True, 0), (False, 0)):
        source.at = begin
        try:
            stores = [_read_cache(source, store.layout, has_streams, n_ext_bytes, is_full) for store in cache.stores]
            if source.n_left:
                raise source.error(f"{source.n_left:,} bytes stand behind the end")
            if len({(store.layout.type_k, store.layout.type_v) for store in stores}) != 1:
                raise source.error("caches of different types")
            return stores
        except StateFileError as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def _read_cache(source: _Source, here: KVLayout, has_streams: bool, n_ext_bytes: int, is_full: bool) -> RowStore:
    """The cells of one cache, of all its streams."""
    layers = here.layers
    parts: list[RowStore] = []
    for _ in range(source.u32() if has_streams else 1):
        n_cells = source.u32()
        if n_cells:
            cells = _read_cells(source, n_cells, n_ext_bytes, is_full)
            parts.append(_read_rows(source, layers, *cells))
    if not parts:
        none = tuple(np.zeros((0, layer.n_head_kv), np.uint8) for layer in layers)
        return RowStore(here, np.zeros(0, np.int32), (), none, none)
    layout = parts[0].layout
    if any((part.layout.type_k, part.layout.type_v) != (layout.type_k, layout.type_v) for part in parts):
        raise source.error("streams of different cache types")
    return RowStore(
        layout,
        np.concatenate([part.pos for part in parts]),
        tuple(ids for part in parts for ids in part.seq_ids),
        tuple(np.concatenate(rows) for rows in zip(*(part.k for part in parts), strict=True)),
        tuple(np.concatenate(rows) for rows in zip(*(part.v for part in parts), strict=True)),
        np.concatenate([_axes(part) for part in parts]) if any(part.axes is not None for part in parts) else None,
    )


def _axes(part: RowStore) -> I32Array:
    return on_every_axis(part.pos) if part.axes is None else part.axes


def _read_cells(
    source: _Source, n_cells: int, n_ext_bytes: int, is_full: bool
) -> tuple[I32Array, I32Array | None, tuple[tuple[int, ...], ...]]:
    """Positions, those on every axis of a model that has several, and the sequences of each cell; in a sequence's file
    all belong to one, whatever it was called.
    """
    if n_cells * _CELL.size > source.n_left:
        raise source.error(f"{n_cells:,} cells do not fit into {source.n_left:,} bytes")
    pos = np.empty(n_cells, np.int32)
    places = np.zeros((n_cells, 2), np.int32)
    seq_ids: list[tuple[int, ...]] = []
    for i in range(n_cells):
        pos[i], n_seq = _CELL.unpack(source.take(_CELL.size))
        if n_ext_bytes:
            column, row, _ = _CELL_EXT.unpack(source.take(n_ext_bytes))
            places[i] = row, column
        found = tuple(source.i32s(n_seq).tolist())
        if not is_full and n_seq > 1:
            raise source.error(f"cell {i} belongs to {n_seq} sequences, in a file of one")
        seq_ids.append(found if is_full else (0,))
    if not places.any():
        return pos, None, tuple(seq_ids)
    axes = on_every_axis(pos)
    axes[:, 1:3] = places
    return pos, axes, tuple(seq_ids)


def _read_rows(
    source: _Source,
    layers: tuple[LayerKV, ...],
    pos: I32Array,
    axes: I32Array | None,
    seq_ids: tuple[tuple[int, ...], ...],
) -> RowStore:
    """K and V of a stream's cells."""
    v_trans, n_layer = source.u32(), source.u32()
    if v_trans > 1 or n_layer != len(layers):
        raise StateMismatchError(f"holds {n_layer} layers, the model keeps {len(layers)} here", source.name)
    n = len(pos)
    k = [_rotated_first(*_read_plane(source, n, layer.n_head_kv * layer.d_k), layer) for layer in layers]
    read_v = _read_transposed if v_trans else _read_plane
    v = [
        read_v(source, n, layer.n_head_kv * layer.d_v) if layer.d_v else (k[i][0], np.zeros((n, 0), np.uint8))
        for i, layer in enumerate(layers)
    ]
    types = {(type_k, type_v) for (type_k, _), (type_v, _) in zip(k, v, strict=True)}
    if len(types) != 1:
        raise source.error("layers of different cache types")
    try:
        layout = KVLayout(layers, *types.pop())
    except ParamError as error:
        raise source.error(str(error)) from None
    return RowStore(layout, pos, seq_ids, tuple(rows for _, rows in k), tuple(rows for _, rows in v), axes)


def _rotated_first(cache_type: QuantType, rows: RowMatrix, layer: LayerKV) -> tuple[QuantType, RowMatrix]:
    """Rows of latents, behind which llama.cpp keeps the rotated part, as our caches keep them."""
    d_rotated = layer.d_k - layer.d_latent if layer.d_latent else 0
    return cache_type, np.roll(rows, d_rotated * rows.shape[1] // layer.d_k, axis=1)


def _read_type(source: _Source) -> tuple[QuantType, int]:
    """A cache type and the bytes of its values.

    NUMERICS: llama.cpp may turn quantised rows by a Hadamard matrix that the file does not tell of.
    """
    number = source.u32()
    found = next((t for t in _EXPONENTS if t == number), None)
    if found is None:
        raise StateMismatchError(
            f"cache type {number} of llama.cpp is not read: only f32, f16 and bf16 are", source.name
        )
    return found, 4 if found is QuantType.F32 else 2


def _finite(source: _Source, cache_type: QuantType, n_bytes: int) -> U8Array:
    """The next bytes, which must be finite numbers: the format has no checksums."""
    data = np.frombuffer(source.take(n_bytes), np.uint8)
    exponent = _EXPONENTS[cache_type]
    if bool(((data.view(exponent.dtype) & exponent) == exponent).any()):
        raise source.error("keys or values that are not finite")
    return data


def _read_plane(source: _Source, n: int, width: int) -> tuple[QuantType, RowMatrix]:
    """One layer's rows, a cell after the other."""
    cache_type, n_value_bytes = _read_type(source)
    n_row_bytes = source.u64()
    if n_row_bytes != width * n_value_bytes:
        raise StateMismatchError(f"rows of {n_row_bytes} bytes, the model has {width * n_value_bytes}", source.name)
    return cache_type, _finite(source, cache_type, n * n_row_bytes).reshape(n, n_row_bytes)


def _read_transposed(source: _Source, n: int, width: int) -> tuple[QuantType, RowMatrix]:
    """One layer's V, a value of all cells after the other."""
    cache_type, n_value_bytes = _read_type(source)
    found = source.u32(), source.u32()
    if found != (n_value_bytes, width):
        raise StateMismatchError(f"{found[1]} values of {found[0]} bytes, the model has {width}", source.name)
    values = _finite(source, cache_type, n * width * n_value_bytes).reshape(width, n, n_value_bytes)
    return cache_type, np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(n, width * n_value_bytes)
