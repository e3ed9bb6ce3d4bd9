"""Memories: what a context remembers between decodes.

`create_memory` makes the one that a model's specification asks for; `base` says what each can do.
"""

from __future__ import annotations

from engine.errors import ParamError
from engine.memory.base import (
    KVPlacement,
    LayerKV,
    LayerState,
    Memory,
    MemoryCaps,
    MemoryParams,
    MemorySpec,
    Placement,
    RopeShift,
    StatePlacement,
    SwaKind,
    Tx,
)
from engine.memory.encdec import EncDecMemory
from engine.memory.encoder import EncoderMemory
from engine.memory.hybrid import HybridMemory
from engine.memory.kv import KVCache
from engine.memory.kv_iswa import KVCacheISWA
from engine.memory.kv_mla import KVCacheMLA
from engine.memory.kv_unified import KVCacheUnified
from engine.memory.layout import KVLayout
from engine.memory.recurrent import RecurrentMemory
from engine.memory.rope_shift import NumpyRopeShift, RopeLayer

__all__ = [
    "EncDecMemory",
    "EncoderMemory",
    "HybridMemory",
    "KVCache",
    "KVCacheISWA",
    "KVCacheMLA",
    "KVCacheUnified",
    "KVLayout",
    "KVPlacement",
    "LayerKV",
    "LayerState",
    "Memory",
    "MemoryCaps",
    "MemoryParams",
    "MemorySpec",
    "NumpyRopeShift",
    "Placement",
    "RecurrentMemory",
    "RopeLayer",
    "RopeShift",
    "StatePlacement",
    "SwaKind",
    "Tx",
    "create_cache",
    "create_memory",
]


def create_memory(spec: MemorySpec, params: MemoryParams) -> Memory:
    """An empty memory of the kind that the model needs.

    Raises: ParamError: sizes out of range, or a cache type that a head size forbids.
    """
    match spec.kind:
        case "kv" | "iswa" | "mla":
            return create_cache(spec, params)
        case "recurrent":
            return RecurrentMemory.create(spec, params)
        case "hybrid":
            return HybridMemory.create(spec, params)


def create_cache(spec: MemorySpec, params: MemoryParams) -> KVCache:
    """An empty cache of keys and values.

    Raises: ParamError: sizes out of range, a cache type that a head size forbids, or a kind that is no cache.
    """
    match spec.kind:
        case "kv":
            return KVCacheUnified.create(spec, params)
        case "iswa":
            return KVCacheISWA.create(spec, params)
        case "mla":
            return KVCacheMLA.create(spec, params)
        case "recurrent" | "hybrid":
            raise ParamError(f"a {spec.kind} memory is no cache")
