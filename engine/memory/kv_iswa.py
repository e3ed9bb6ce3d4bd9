"""`KVCacheISWA`: one cache for the layers that see everything, one for those with a sliding window.

The second lets go of cells that left the window, oldest first, page by page; a margin is kept so that a chat can step
back a little without computing anew. Operations that would leave the next tokens without cells that they see are
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cext.pages import PageBudget
from engine.memory.base import POS_END, MemoryParams, MemorySpec, SwaKind
from engine.memory.cells import SeqRuns
from engine.memory.kv import KVCache, Tables, make_stores
from engine.memory.kv_store import KVStore
from engine.memory.layout import PAGE_CELLS

MARGIN_MIN = 1024
"""Fewest cells kept behind the window, where nothing bounds them."""


class KVCacheISWA(KVCache):
    """A cache whose second store keeps the window and a margin."""

    @classmethod
    def create(cls, spec: MemorySpec, params: MemoryParams, budget: PageBudget | None = None) -> KVCacheISWA:
        """An empty cache. Raises: ParamError: a cache type that a head size forbids."""
        base = tuple(layer for layer in spec.layers if layer.il not in spec.swa_layers)
        swa = tuple(layer for layer in spec.layers if layer.il in spec.swa_layers)
        return cls(spec, params, make_stores(params, [base, swa], budget))

    def _like(self, stores: Sequence[KVStore]) -> KVCacheISWA:
        return type(self)(self.spec, self.params, stores)

    def need_bytes(self, n_tokens: int, n_ubatch: int) -> int:
        """Bytes of all pages of the first store, and of those that the second keeps of a sequence of n_tokens."""
        base, swa = self.stores
        kept = min(n_tokens, self.spec.n_swa + self._margin + n_ubatch + PAGE_CELLS)
        return sum(-(-n // PAGE_CELLS) * store.pages.pool.stride_bytes for n, store in ((n_tokens, base), (kept, swa)))

    @property
    def _margin(self) -> int:
        """Cells kept behind the window while nothing bounds them."""
        margin = self.params.swa_margin
        return max(self.spec.n_swa, MARGIN_MIN) if margin is None else margin

    @property
    def _n_window(self) -> int:
        """Cells behind a token that it may see: what must be there when it is computed."""
        return max(self.spec.n_swa - 1, 1)

    def _window_start(self, pos: int) -> int:
        """The first position that a token at pos sees. Source: llama.cpp's is_masked_swa, see kv.md 2.5."""
        if self.spec.swa_kind is SwaKind.CHUNKED:
            return pos // self.spec.n_swa * self.spec.n_swa
        return pos - self.spec.n_swa + 1

    def _is_complete(self, tables: Tables) -> bool:
        """Whether the newest cells of both stores are the same, as far back as the next tokens can see.

        By position for sequences whose cells share positions, and by order for those about to close a gap.
        """
        base, swa = tables
        start = self._window_start(base.pos_max() + 1)
        n = max(base.kept(max(start, 0), base.pos_max() + 1).n_cells, min(self._n_window, base.n_cells))
        return base.frame == swa.frame and np.array_equal(base.newest(n).cells().pos, swa.newest(n).cells().pos)

    def _settled(self, tables: Tables) -> Tables:
        """The window's cells cut to the newest ones that follow each other without a gap, so that the oldest position
        says what there is.
        """
        base, swa = tables
        wanted, there = base.cells().pos[::-1], swa.cells().pos[::-1]
        n = min(len(wanted), len(there))
        differ = np.flatnonzero(wanted[:n] != there[:n])
        n_good = int(differ[0]) if len(differ) else n
        return (base, swa.newest(n_good)) if n_good < swa.n_cells else tables

    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        """The newest position p <= pos for which removing [p, end) works: pos, or 0 where its window is gone."""
        pos = super().seq_pos_reentry(seq_id, pos)
        return pos if self._is_complete(tuple(table.removed(pos, POS_END) for table in self.tables(seq_id))) else 0

    def _trim(self, seq_ids: Sequence[int]) -> None:
        is_bounded = self.params.swa_margin is None and self.params.kv_bytes_max
        if not is_bounded and not self.params.swa_full:
            self._drop(seq_ids, self._margin)

    def _make_room(self, n_tokens: int) -> None:
        if not self.params.kv_bytes_max:
            return
        budget = self.stores[0].pages.pool.budget
        n_pages = n_tokens // PAGE_CELLS + 2
        needed_bytes = sum(n_pages * store.pages.pool.stride_bytes for store in self.stores)
        margin = 16 * self.spec.n_swa
        while budget.max_bytes - budget.used_bytes < needed_bytes and margin:
            margin = margin // 2 if margin >= PAGE_CELLS else 0
            self._drop(self.seq_ids(), margin)

    def _drop(self, seq_ids: Sequence[int], margin: int) -> None:
        """Let go of whole pages of cells older than the window and the margin, by position and by order."""
        store = self.stores[1]
        trimmed: dict[int, SeqRuns] = {}
        for seq_id in seq_ids:
            table = store.table(seq_id)
            keep_from = self._window_start(table.pos_max() + 1) - margin
            if keep_from - table.pos_min() < PAGE_CELLS:
                continue
            keep_from = min(keep_from, table.newest(self._n_window + margin).pos_min())
            if keep_from - table.pos_min() >= PAGE_CELLS:
                trimmed[seq_id] = table.removed(0, keep_from)
        if trimmed:
            store.install(trimmed)
