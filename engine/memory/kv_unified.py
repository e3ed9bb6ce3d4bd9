"""`KVCacheUnified`: one cache for all layers, each of which sees every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from cext.pages import PageBudget
from engine.memory.base import MemoryParams, MemorySpec
from engine.memory.kv import KVCache, Tables, make_stores
from engine.memory.kv_store import KVStore


class KVCacheUnified(KVCache):
    """A cache that keeps every cell until it is removed."""

    @classmethod
    def create(cls, spec: MemorySpec, params: MemoryParams, budget: PageBudget | None = None) -> Self:
        """An empty cache. Raises: ParamError: a cache type that a head size forbids."""
        return cls(spec, params, make_stores(params, [spec.layers], budget))

    def _is_complete(self, tables: Tables) -> bool:
        return True

    def _settled(self, tables: Tables) -> Tables:
        return tables

    def _trim(self, seq_ids: Sequence[int]) -> None:
        return None

    def _make_room(self, n_tokens: int) -> None:
        return None

    def _like(self, stores: Sequence[KVStore]) -> Self:
        return type(self)(self.spec, self.params, stores)
