"""`KVCacheMLA`: one latent row for each token and layer, from which attention takes keys and values alike.

A row is the rotated part first (so that a shift turns the leading dims of q, as for any other cache), then the latent;
there is no V beside it.
"""

from __future__ import annotations

from dataclasses import replace

from cext.pages import PageBudget
from engine.errors import ParamError
from engine.memory.base import MemoryParams, MemorySpec
from engine.memory.kv import make_stores
from engine.memory.kv_unified import KVCacheUnified
from engine.memory.layout import row_bytes
from engine.types import QuantType


class KVCacheMLA(KVCacheUnified):
    """A cache of latents, K only; the type of V asked for does not matter."""

    v_in_k = True

    @classmethod
    def create(cls, spec: MemorySpec, params: MemoryParams, budget: PageBudget | None = None) -> KVCacheMLA:
        """An empty cache. Raises: ParamError: a layer with a V of its own, or a type that the row's parts forbid."""
        if any(layer.d_v or not 0 < layer.d_latent < layer.d_k for layer in spec.layers):
            raise ParamError("a latent cache keeps no V, but rows that end with a latent")
        for layer in spec.layers:
            row_bytes(params.type_k, layer.d_k - layer.d_latent, "the rotated part of a latent row")
        params = replace(params, type_v=params.type_k)
        return cls(spec, params, make_stores(params, [spec.layers], budget))

    def kv_offsets(self, il: int) -> tuple[int, int]:
        """(k_off, v_off) of layer il in a page: V begins behind the rotated part of K's first row."""
        layout = self.stores[0].layout
        layer = layout.layer(il)
        return layout.k_off(il), layout.k_off(il) + row_bytes(layout.type_k, layer.d_k - layer.d_latent)

    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """(type_k, type_k)."""
        return self.params.type_k, self.params.type_k
