"""A context whose next token is a function of exactly what its cache holds: wrong reuse gives wrong text."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np

from engine.batch import Batch
from engine.context.core import Context, DecodeStatus
from engine.session import Session
from engine.types import F32Array

N_VOCAB = 300
BOS, EOG = 256, 257


class FakeMemory:
    """Cells of sequences as (position, token); shift and removal can be switched off."""

    def __init__(self, can_shift: bool, can_cut: bool) -> None:
        self.cells: dict[int, list[tuple[int, int]]] = {}
        self.caps = SimpleNamespace(shift=can_shift)
        self.can_cut = can_cut
        self.calls: list[tuple[object, ...]] = []

    def seq_pos_max(self, seq_id: int) -> int:
        return max((pos for pos, _ in self.cells.get(seq_id, [])), default=-1)

    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        return min(pos, self.seq_pos_max(seq_id) + 1) if self.can_cut else 0

    def seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        end = 2**31 if p1 < 0 else p1
        kept = [(pos, token) for pos, token in self.cells.get(seq_id, []) if not max(p0, 0) <= pos < end]
        self.calls.append(("seq_rm", p0, p1))
        if kept and not self.can_cut:
            return False
        self.cells[seq_id] = kept
        return True

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        assert self.caps.shift
        assert p1 < 0
        self.calls.append(("seq_add", p0, p1, delta))
        self.cells[seq_id] = [(pos + delta if pos >= p0 else pos, token) for pos, token in self.cells[seq_id]]

    def tokens(self, seq_id: int) -> list[int]:
        """Ids in the order of positions, which must be 0, 1, ..."""
        cells = sorted(self.cells.get(seq_id, []))
        assert [pos for pos, _ in cells] == list(range(len(cells)))
        return [token for _, token in cells]


class FakeDetokenizer:
    """One character per token; bytes of 128 and more wait for a second one, as UTF-8 does."""

    def __init__(self) -> None:
        self.bytes = b""

    def push(self, token: int) -> str:
        self.bytes += bytes([token]) if token < 256 else b""
        try:
            text = self.bytes.decode()
        except UnicodeDecodeError:
            return ""
        self.bytes = b""
        return text

    def flush(self) -> str:
        text, self.bytes = self.bytes.decode(errors="replace"), b""
        return text


class FakeContext:
    """As much of `Context` as a session uses."""

    def __init__(self, n_ctx: int = 64, n_ubatch: int = 8, can_shift: bool = True, can_cut: bool = True) -> None:
        self.memory = FakeMemory(can_shift, can_cut)
        self.abort_flag = np.zeros(1, dtype=np.int32)
        self.n_decoded = self.n_reused = 0
        self.batches: list[int] = []
        self.on_decode: Callable[[], None] = lambda: None
        self.script: list[int] | None = None
        self._sizes = n_ctx, n_ubatch
        self._logits: F32Array | None = None
        self._tokenizer = SimpleNamespace(
            bos_token_id=BOS, eog_token_ids=frozenset({EOG}), detokenizer=lambda is_continuation: FakeDetokenizer()
        )

    def n_ctx_per_seq(self) -> int:
        return self._sizes[0]

    def n_ubatch(self) -> int:
        return self._sizes[1]

    def perf_add_reused(self, n_tokens: int) -> None:
        self.n_reused += n_tokens

    def get_model(self) -> SimpleNamespace:
        arch, hparams = SimpleNamespace(has_encoder=False), SimpleNamespace(n_vocab=N_VOCAB)
        return SimpleNamespace(tokenizer=self._tokenizer, hparams=hparams, arch=arch)

    def get_kv_self(self) -> FakeMemory:
        return self.memory

    def decode(self, batch: Batch) -> DecodeStatus:
        assert batch.tokens is not None
        assert batch.pos is not None
        seq_id = batch.seq_ids[0][0]
        assert int(batch.pos[0]) == len(self.memory.tokens(seq_id)), "positions go on where the cache ends"
        assert batch.n_tokens <= self.n_ubatch()
        assert int(batch.pos[-1]) < self.n_ctx_per_seq()
        self.on_decode()
        if self.abort_flag[0]:
            return DecodeStatus.ABORTED
        self.memory.cells.setdefault(seq_id, []).extend(zip(batch.pos.tolist(), batch.tokens.tolist(), strict=True))
        self.n_decoded += batch.n_tokens
        self.batches.append(batch.n_tokens)
        self._logits = self._logits_of(self.memory.tokens(seq_id)) if batch.logits[-1] else None
        return DecodeStatus.OK

    def _logits_of(self, tokens: list[int]) -> F32Array:
        seed = zlib.crc32(np.array(tokens, dtype=np.int32).tobytes())
        logits = np.random.default_rng(seed).standard_normal(N_VOCAB).astype(np.float32)
        logits[128:] = -20.0
        if self.script is not None:
            logits[self.script.pop(0) if self.script else EOG] = 90.0
        return logits

    def get_logits_ith(self, i: int) -> F32Array:
        assert i == -1
        assert self._logits is not None, "no logits were asked for"
        return self._logits


def make_session(ctx: FakeContext, seq_id: int = 0) -> Session:
    return Session(cast(Context, ctx), seq_id)
