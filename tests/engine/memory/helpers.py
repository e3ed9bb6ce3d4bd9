"""Tokens with contents of their own, written to and read from the pages of a cache the slow way."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cext.pages import decode_rows, encode_rows, gather_cells, scatter_cells
from engine.batch import UBatch
from engine.memory import (
    KVCache,
    KVLayout,
    LayerKV,
    MemoryParams,
    MemorySpec,
    NumpyRopeShift,
    RopeLayer,
    SwaKind,
    create_cache,
)
from engine.memory.base import U64Array
from engine.memory.kv_store import KVStore
from engine.memory.layout import row_bytes
from engine.types import F32Array, I32Array, QuantType

LAYERS = (LayerKV(0, 2, 8, 4), LayerKV(1, 1, 8, 8), LayerKV(2, 1, 8, 4), LayerKV(3, 2, 8, 8))
ROPE = NumpyRopeShift(
    {0: RopeLayer("neox", 8), 1: RopeLayer("none"), 2: RopeLayer("norm", 4, freq_base=500.0), 3: RopeLayer("neox", 6)}
)
N_SWA = 20
NO_OUTPUT: I32Array = np.zeros(0, np.int32)


def make_cache(kind: str, layers: tuple[LayerKV, ...] = LAYERS, rope: NumpyRopeShift = ROPE, **params: Any) -> KVCache:
    """A small cache: "kv", or "iswa" with layers 2 and 3 in the window, or "chunked"."""
    window = kind in ("iswa", "chunked")
    spec = MemorySpec(
        kind="iswa" if window else "kv",
        layers=layers,
        fingerprint="test",
        rope=rope,
        swa_layers=frozenset({2, 3} if window else ()),
        n_swa=N_SWA if window else 0,
        swa_kind={"kv": SwaKind.NONE, "iswa": SwaKind.STANDARD, "chunked": SwaKind.CHUNKED}[kind],
    )
    settings: dict[str, Any] = {
        "n_ctx": 4096, "n_seq_max": 4, "type_k": QuantType.F32, "type_v": QuantType.F32, "swa_margin": 30,
    }  # fmt: skip
    return create_cache(spec, MemoryParams(**{**settings, **params}))


def ubatch(pos: Sequence[int] | I32Array, seq_ids: tuple[int, ...] = (0,)) -> UBatch:
    """Tokens that all belong to the same sequences."""
    where = np.asarray(pos, np.int32)
    n = len(where)
    return UBatch(n, None, None, where, ((seq_ids[0], 0, n),), (seq_ids,) * n, NO_OUTPUT, NO_OUTPUT)


def ubatch_of(parts: Sequence[tuple[Sequence[int], tuple[int, ...]]]) -> UBatch:
    """Tokens of several sequences: (positions, sequences) each."""
    pos = np.concatenate([np.asarray(p, np.int32) for p, _ in parts])
    starts = np.cumsum([0, *(len(p) for p, _ in parts)])
    segments = tuple((ids[0], int(t0), len(p)) for t0, (p, ids) in zip(starts, parts, strict=False))
    seq_ids = tuple(ids for p, ids in parts for _ in p)
    return UBatch(len(pos), None, None, pos, segments, seq_ids, NO_OUTPUT, NO_OUTPUT)


@functools.cache
def _random(content: int, il: int, which: int, n: int) -> F32Array:
    return np.random.default_rng((content, il, which)).standard_normal(n, np.float32)


def true_k(layer: LayerKV, contents: Sequence[int], pos: I32Array, rope: NumpyRopeShift = ROPE) -> F32Array:
    """f32[n, n_head_kv, d_k]: K of tokens, each encoded at its position."""
    k = np.array([_random(c, layer.il, 0, layer.n_head_kv * layer.d_k) for c in contents], np.float32).reshape(
        len(contents), layer.n_head_kv, layer.d_k
    )
    if rope.rotates(layer.il):
        rope.rotate(layer.il, k, np.asarray(pos, np.int32))
    return k


def true_v(layer: LayerKV, contents: Sequence[int]) -> F32Array:
    """f32[n, n_head_kv, d_v]."""
    rows = [_random(c, layer.il, 1, layer.n_head_kv * layer.d_v) for c in contents]
    return np.array(rows, np.float32).reshape(len(contents), layer.n_head_kv, layer.d_v)


def _encode(quant: QuantType, values: F32Array, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    by_head = np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(-1, values.shape[2])
    encode_rows(quant, by_head, out)


def write(layout: KVLayout, pages: U64Array, cells: I32Array, contents: Sequence[int], rope_pos: I32Array,
          rope: NumpyRopeShift = ROPE) -> None:  # fmt: skip
    """Do what the kernels do: K rotated for rope_pos, and V, into each token's cell."""
    n = len(contents)
    data = np.zeros(n * layout.cell_bytes, np.uint8)
    for layer in layout.layers:
        k0, v0 = layout.k_off(layer.il, n), layout.v_off(layer.il, n)
        v1 = v0 + layer.n_head_kv * n * row_bytes(layout.type_v, layer.d_v)
        _encode(layout.type_k, true_k(layer, contents, rope_pos, rope), data[k0:v0])
        _encode(layout.type_v, true_v(layer, contents), data[v0:v1])
    scatter_cells(layout.row_bytes, data, pages, cells)


def read(store: KVStore, seq_id: int) -> tuple[I32Array, dict[int, tuple[F32Array, F32Array]]]:
    """Positions of a sequence, and K and V of each layer f32[n, n_head_kv, d], K as encoded at those positions.

    K is turned from where it was encoded by what the run says, as attention turns q the other way.
    """
    table = store.table(seq_id)
    cells = table.cells()
    layout, n = store.layout, len(cells)
    data = np.zeros(n * layout.cell_bytes, np.uint8)
    gather_cells(layout.row_bytes, cells.page, cells.cell, data)
    out: dict[int, tuple[F32Array, F32Array]] = {}
    for layer in layout.layers:
        k0, v0 = layout.k_off(layer.il, n), layout.v_off(layer.il, n)
        k = np.empty((layer.n_head_kv * n, layer.d_k), np.float32)
        v = np.empty((layer.n_head_kv * n, layer.d_v), np.float32)
        decode_rows(layout.type_k, data[k0:v0], k)
        decode_rows(layout.type_v, data[v0 : v0 + layer.n_head_kv * n * row_bytes(layout.type_v, layer.d_v)], v)
        k = np.ascontiguousarray(k.reshape(layer.n_head_kv, n, layer.d_k).transpose(1, 0, 2))
        out[layer.il] = k, v.reshape(layer.n_head_kv, n, layer.d_v).transpose(1, 0, 2)
    return cells.pos, out


def decode(cache: KVCache, parts: Sequence[tuple[Sequence[int], tuple[int, ...], Sequence[int]]], n_ubatch: int = 10**9,
           rope: NumpyRopeShift = ROPE) -> None:  # fmt: skip
    """What a context does with (positions, sequences, contents) parts, one micro batch for each and n_ubatch."""
    cache.prepare(sum(len(p) for p, _, _ in parts))
    tx = cache.begin()
    try:
        placed = []
        for pos, ids, contents in parts:
            for t in range(0, len(pos), n_ubatch):
                piece = slice(t, t + n_ubatch)
                placed.append((tx.place(ubatch(pos[piece], ids)), contents[piece]))
        for where, contents in placed:
            for store, kv in zip(cache.stores, where.kv, strict=True):
                write(store.layout, kv.pages, kv.cells, contents, where.rope_pos, rope)
    except BaseException:
        tx.rollback()
        raise
    tx.commit()
