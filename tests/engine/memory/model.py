"""What a cache must hold, as plain lists: the slow, obvious twin of every sequence operation."""

from __future__ import annotations

import copy

import numpy as np

from engine.memory import KVCache
from tests.engine.memory.helpers import N_SWA, read, true_k, true_v

END = 2**31


class Model:
    """For each sequence a list of (position, content) in position order."""

    def __init__(self) -> None:
        self.seqs: dict[int, list[tuple[int, int]]] = {}

    def copy(self) -> Model:
        """The same, apart."""
        return copy.deepcopy(self)

    def seq(self, seq_id: int) -> list[tuple[int, int]]:
        """The tokens of a sequence."""
        return self.seqs.get(seq_id, [])

    def _set(self, seq_id: int, tokens: list[tuple[int, int]]) -> None:
        tokens = sorted(tokens, key=lambda token: token[0])
        if tokens:
            self.seqs[seq_id] = tokens
        else:
            self.seqs.pop(seq_id, None)

    def add_tokens(self, seq_ids: tuple[int, ...], pos: list[int], contents: list[int]) -> None:
        """Tokens that several sequences share."""
        for seq_id in seq_ids:
            self._set(seq_id, self.seq(seq_id) + list(zip(pos, contents, strict=True)))

    def rm(self, seq_id: int, p0: int, p1: int) -> None:
        p0, p1 = max(p0, 0), END if p1 < 0 else p1
        for s in list(self.seqs) if seq_id < 0 else [seq_id]:
            self._set(s, [t for t in self.seq(s) if not p0 <= t[0] < p1])

    def cp(self, src: int, dst: int, p0: int, p1: int) -> None:
        lo, hi = max(p0, 0), END if p1 < 0 else p1
        part = [t for t in self.seq(src) if lo <= t[0] < hi]
        if src != dst and part:
            self._set(dst, [t for t in self.seq(dst) if not lo <= t[0] < hi] + part)

    def keep(self, seq_id: int) -> None:
        self.seqs = {s: tokens for s, tokens in self.seqs.items() if s == seq_id}

    def add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        p0, p1 = max(p0, 0), END if p1 < 0 else p1
        moved = [(p + delta, c) if p0 <= p < p1 else (p, c) for p, c in self.seq(seq_id)]
        self._set(seq_id, [t for t in moved if t[0] >= 0])

    def div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        p0, p1 = max(p0, 0), END if p1 < 0 else p1
        self._set(seq_id, [(p // divisor, c) if p0 <= p < p1 else (p, c) for p, c in self.seq(seq_id)])

    def pos_max(self, seq_id: int) -> int:
        return self.seq(seq_id)[-1][0] if self.seq(seq_id) else -1


def check(cache: KVCache, model: Model, atol: float = 2e-4) -> None:
    """Every sequence of every store has the positions, K and V that the model says, as far as the store keeps them."""
    assert cache.seq_ids() == tuple(sorted(model.seqs))
    for i_store, store in enumerate(cache.stores):
        n_used = sum(mask.bit_count() for mask in store.pages.used().values())
        cells = {key for table in store.seqs.values() for key in table.cells().key().tolist()}
        assert n_used == len(cells) == store.pages.used_cells
        for seq_id, tokens in model.seqs.items():
            pos, layers = read(store, seq_id)
            table = store.table(seq_id)
            assert int(table.runs["delta"][-1]) == 0
            assert table.frame == cache.stores[0].table(seq_id).frame
            if i_store == 1:
                tokens = _kept(cache, tokens, pos.tolist())
            assert pos.tolist() == [p for p, _ in tokens]
            contents = [c for _, c in tokens]
            for il, (k, v) in layers.items():
                layer = store.layout.layer(il)
                assert np.array_equal(v, true_v(layer, contents))
                turned = k.copy()
                if cache.spec.rope is not None and cache.spec.rope.rotates(il):
                    cache.spec.rope.rotate(il, turned, table.cells().delta - np.int32(table.frame))
                np.testing.assert_allclose(turned, true_k(layer, contents, pos), atol=atol)


def _kept(cache: KVCache, tokens: list[tuple[int, int]], pos: list[int]) -> list[tuple[int, int]]:
    """Of a sequence's tokens those that the window's store kept; all that the next token sees must be there."""
    next_pos = tokens[-1][0] + 1
    start = next_pos - N_SWA + 1 if cache.spec.swa_kind == 1 else next_pos // N_SWA * N_SWA
    visible = [t for t in tokens if t[0] >= start]
    assert len(pos) >= len(visible)
    dropped = len(tokens) - len(pos)
    assert dropped >= 0
    return tokens[dropped:]
