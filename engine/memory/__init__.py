"""Memories: what a context remembers between decodes.

`create_memory` makes the one that a model's specification asks for; `base` says what each can do.
"""

from __future__ import annotations

from engine.memory.base import (
    KVPlacement,
    LayerKV,
    Memory,
    MemoryCaps,
    MemoryParams,
    MemorySpec,
    Placement,
    RopeShift,
    SwaKind,
    Tx,
)
from engine.memory.kv import KVCache
from engine.memory.kv_iswa import KVCacheISWA
from engine.memory.kv_unified import KVCacheUnified
from engine.memory.layout import KVLayout
from engine.memory.rope_shift import NumpyRopeShift, RopeLayer

__all__ = [
    "KVCache",
    "KVCacheISWA",
    "KVCacheUnified",
    "KVLayout",
    "KVPlacement",
    "LayerKV",
    "Memory",
    "MemoryCaps",
    "MemoryParams",
    "MemorySpec",
    "NumpyRopeShift",
    "Placement",
    "RopeLayer",
    "RopeShift",
    "SwaKind",
    "Tx",
    "create_memory",
]


def create_memory(spec: MemorySpec, params: MemoryParams) -> KVCache:
    """An empty memory of the kind that the model needs.

    Raises: ParamError: sizes out of range, or a cache type that a head size forbids.
    """
    match spec.kind:
        case "kv":
            return KVCacheUnified.create(spec, params)
        case "iswa":
            return KVCacheISWA.create(spec, params)
