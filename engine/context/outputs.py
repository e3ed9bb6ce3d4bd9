"""The results of a batch: logits and hidden rows of the tokens that asked for them, in the caller's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import BatchError, OutOfMemoryError, UnsupportedCallError
from engine.types import F32Array, F32Logits, I32Array

if TYPE_CHECKING:
    from engine.batch import Batch

_FIRST_ROW: I32Array = np.zeros(1, dtype=np.int32)
_NO_ROW: I32Array = np.full(1, -1, dtype=np.int32)
KEEP_LOGITS_BYTES = 64 << 20  # a larger array of logits is given back at the next decode


class Outputs:
    """Arrays that a batch's results go to, kept from one batch to the next.

    Args:
        n_logits, n_embd: widths: of the vocabulary or of a classification head, and of the model.
        kind: the context kind's name, for error messages.

    Attributes:
        n_logits: the first of the widths.
        logits: f32[rows, n_logits] or None; rows beyond n are stale.
        embd: f32[rows, n_embd] or None.
        n: outputs of the last batch that succeeded; 0 while one is computed.
    """

    def __init__(self, n_logits: int, n_embd: int, kind: str) -> None:
        self.n_logits, self._n_embd, self._kind = n_logits, n_embd, kind
        self.logits: F32Logits | None = None
        self.embd: F32Array | None = None
        self.n = 0
        self._row_of: I32Array = np.zeros(0, dtype=np.int32)
        self._batch: Batch | None = None

    def start(self, batch: Batch, *, want_logits: bool, want_embd: bool) -> None:
        """Make room for a batch's outputs. Raises: OutOfMemoryError."""
        self.n = 0
        n_out = int(batch.logits[0]) if batch.n_tokens == 1 else int(batch.logits.sum())
        kept = self.logits
        if not want_logits:
            self.logits = None
        elif kept is None or len(kept) < n_out or (kept.nbytes > KEEP_LOGITS_BYTES and len(kept) > 2 * n_out):
            self.logits = None
            self.logits = self._rows(n_out, self.n_logits, "logits")
        if not want_embd:
            self.embd = None
        elif self.embd is None or len(self.embd) < n_out:
            self.embd = self._rows(n_out, self._n_embd, "hidden rows")
        if batch.n_tokens == 1:
            self._row_of = _FIRST_ROW if n_out else _NO_ROW
        else:
            self._row_of = np.where(batch.logits, np.cumsum(batch.logits) - 1, -1).astype(np.int32)

    def finish(self, batch: Batch, out_tokens: Sequence[I32Array]) -> None:
        """The batch's outputs are there, one micro batch's after the other: of these tokens of the batch."""
        self.n = sum(map(len, out_tokens))
        self._batch = batch
        if len(out_tokens) > 1:
            row_of = self._row_of[np.concatenate(out_tokens)]
            for rows in (self.logits, self.embd) if (np.diff(row_of) < 0).any() else ():
                if rows is not None:
                    rows[row_of] = rows[: self.n].copy()

    @staticmethod
    def _rows(n: int, width: int, what: str) -> F32Array:
        try:
            return np.empty((max(n, 1), width), dtype=np.float32)
        except MemoryError:
            raise OutOfMemoryError(4 * n * width, f"the {what} of {n} tokens") from None

    def get_logits(self) -> F32Logits:
        """Logits of all outputs: f32[n, n_logits]."""
        if self.logits is None or not self.n:
            return np.zeros((0, self.n_logits), dtype=np.float32)
        return self.logits[: self.n]

    def get_embeddings(self) -> F32Array:
        """Hidden rows of all outputs: f32[n, n_embd]. Raises: UnsupportedCallError: not asked for."""
        if self.embd is None:
            raise UnsupportedCallError("get_embeddings", f"{self._kind} made without embeddings=True")
        return self.embd[: self.n]

    def pooled(self, seq_id: int, pooling: str) -> F32Array:
        """The hidden rows of a sequence as one: f32[n_embd], not normalised; for "rank" its first row's scores.

        Raises: UnsupportedCallError: without a pooling; BatchError: the sequence has no output in the last batch.
        """
        if pooling == "none":
            raise UnsupportedCallError("get_embeddings_seq", f"{self._kind} with pooling 'none'")
        rows = self.get_logits() if pooling == "rank" else self.get_embeddings()
        if self.n and self._batch is not None:
            asked = [ids for ids, flag in zip(self._batch.seq_ids, self._batch.logits, strict=True) if flag]
            rows = rows[[seq_id in ids for ids in asked]]
        if not len(rows):
            raise BatchError(f"sequence {seq_id} has no output in the last batch")
        if pooling == "mean":
            return np.asarray(rows.mean(axis=0, dtype=np.float64), dtype=np.float32)
        row: F32Array = rows[-1 if pooling == "last" else 0]
        return row

    def row(self, i: int) -> int:
        """The output row of the batch's i-th token, or counted from the last output for negative i.

        Raises: BatchError: that token's output was not asked for.
        """
        if i < 0:
            row = self.n + i
        else:
            row = int(self._row_of[i]) if i < len(self._row_of) else -1
        if not 0 <= row < self.n:
            raise BatchError(f"no output for token {i}: {self.n} of the last batch were asked for")
        return row
