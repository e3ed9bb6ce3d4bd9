"""`KVCacheMLA`: one latent row for each token and layer, from which attention takes keys and values alike.

A row is the rotated part first (so that a shift turns the leading dims of q, as for any other cache), then the latent;
there is no V beside it.
"""

from __future__ import annotations

from cext.pages import PageBudget
from engine.errors import ParamError
from engine.memory.base import MemoryParams, MemorySpec
from engine.memory.kv import make_stores
from engine.memory.kv_unified import KVCacheUnified


class KVCacheMLA(KVCacheUnified):
    """A cache of latents, K only."""

    @classmethod
    def create(cls, spec: MemorySpec, params: MemoryParams, budget: PageBudget | None = None) -> KVCacheMLA:
        """An empty cache. Raises: ParamError: a layer with a V of its own, or a type that the row size forbids."""
        if any(layer.d_v for layer in spec.layers):
            raise ParamError("a latent cache keeps no V")
        return cls(spec, params, make_stores(params, [spec.layers], budget))
