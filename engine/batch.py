"""Batches: what a caller asks to decode, and the micro batches that it is cut into.

Stands between the caller (`engine.generate`) and `engine.context`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.errors import BatchError
from engine.types import F32Array, I32Array

ONE_OUTPUT = np.ones(1, dtype=np.bool_)
"""The output flags of a batch of one token, as each token of a reply is."""
ONE_OUTPUT.setflags(write=False)

LogitsFlag = Literal["last", "all", "none"]
SeqIds = int | Sequence[int]
Positions = int | Sequence[int] | Sequence[Sequence[int]] | I32Array | None
"""Of the first token, or of each, or [axis][token]; None: where the sequence ends."""

N_AXES = 4
"""Position axes that there are room for: time, row, column and one more."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tokens or embeddings with their positions and sequences.

    Attributes:
        tokens: i32[n_tokens], or None where `embd` is given.
        embd: f32[n_tokens, n_embd], or None.
        pos: i32[n_tokens] positions, or None: each sequence goes on where it ends.
        seq_ids: per token, the sequences that share it; the first one's cells are what it attends to.
        logits: bool[n_tokens]: whose output is asked for.
        axes: i32[n_tokens, 4], the positions on every axis (time, which is `pos`, row, column, one more) of models whose
            images have several; None where all are `pos`.
    """

    tokens: I32Array | None
    embd: F32Array | None
    pos: I32Array | None
    seq_ids: tuple[tuple[int, ...], ...]
    logits: np.ndarray[tuple[int], np.dtype[np.bool_]]
    axes: I32Array | None = None

    @property
    def n_tokens(self) -> int:
        """Tokens or embeddings in the batch."""
        return len(self.seq_ids)

    @classmethod
    def from_tokens(
        cls,
        tokens: Sequence[int] | I32Array,
        pos: Positions = 0,
        seq_id: SeqIds = 0,
        logits: LogitsFlag | Sequence[bool] = "last",
    ) -> Batch:
        """A batch of one sequence's tokens.

        Args:
            tokens: ids, one after the other.
            pos: position of the first one, or of each, or i32[3 or 4, n_tokens], of each on every axis; None: where the
                sequence ends.
            seq_id: its sequence, or several that share the tokens.
            logits: whose logits are asked for.

        Raises: BatchError: no tokens, or a number that is no 32-bit integer.
        """
        try:
            ids = np.ascontiguousarray(tokens, dtype=np.int32)
        except (OverflowError, ValueError, TypeError) as error:
            raise BatchError(f"tokens must be 32-bit integers: {error}") from None
        if ids.ndim != 1:
            raise BatchError(f"tokens must be one row of ids, got shape {ids.shape}")
        return cls._make(ids, None, len(ids), pos, seq_id, logits)

    @classmethod
    def from_embeddings(
        cls,
        embd: F32Array,
        pos: Positions = 0,
        seq_id: SeqIds = 0,
        logits: LogitsFlag | Sequence[bool] = "last",
    ) -> Batch:
        """A batch of one sequence's embeddings f32[n_tokens, n_embd]; else as `from_tokens`."""
        rows = np.ascontiguousarray(embd, dtype=np.float32)
        if rows.ndim != 2:
            raise BatchError(f"embeddings must have shape [n_tokens, n_embd], got {rows.shape}")
        return cls._make(None, rows, len(rows), pos, seq_id, logits)

    @classmethod
    def _make(
        cls,
        tokens: I32Array | None,
        embd: F32Array | None,
        n: int,
        pos: Positions,
        seq_id: SeqIds,
        logits: LogitsFlag | Sequence[bool],
    ) -> Batch:
        if n == 0:
            raise BatchError("the batch is empty")
        if n == 1 and type(pos) is int and type(seq_id) is int and 0 <= pos < 2**31 - 1 and logits == "last":
            return cls(tokens, embd, np.array((pos,), dtype=np.int32), ((seq_id,),), ONE_OUTPUT)  # each generated token
        where, axes = _positions(pos, n)
        ids = (int(seq_id),) if isinstance(seq_id, (int, np.integer)) else tuple(int(s) for s in seq_id)
        if not ids or len(set(ids)) != len(ids):
            raise BatchError(f"sequence ids {ids}: one or more different ones are needed")
        flags = np.zeros(n, dtype=np.bool_)
        if logits == "all":
            flags[:] = True
        elif logits == "last":
            flags[-1] = True
        elif logits != "none":
            given = np.asarray(logits, dtype=np.bool_)
            if given.shape != (n,):
                raise BatchError(f"{n} tokens but {given.shape} output flags")
            flags[:] = given
        return cls(tokens, embd, where, (ids,) * n, flags, axes)

    @classmethod
    def join(cls, batches: Sequence[Batch]) -> Batch:
        """One batch of all tokens, in the order given.

        Raises: BatchError: none given, tokens mixed with embeddings, or given positions with automatic ones.
        """
        if not batches:
            raise BatchError("nothing to join")
        tokens = [b.tokens for b in batches if b.tokens is not None]
        embd = [b.embd for b in batches if b.embd is not None]
        pos = [b.pos for b in batches if b.pos is not None]
        if tokens and embd:
            raise BatchError("tokens and embeddings cannot be in one batch")
        if len({e.shape[1] for e in embd}) > 1:
            raise BatchError("embeddings of different widths cannot be in one batch")
        if len(pos) not in (0, len(batches)):
            raise BatchError("given and automatic positions cannot be in one batch")
        return cls(
            np.concatenate(tokens) if tokens else None,
            np.concatenate(embd) if embd else None,
            np.concatenate(pos) if pos else None,
            tuple(ids for b in batches for ids in b.seq_ids),
            np.concatenate([b.logits for b in batches]),
            np.concatenate([b.all_axes() for b in batches]) if any(b.axes is not None for b in batches) else None,
        )

    def all_axes(self) -> I32Array:
        """The given positions on every axis: i32[n_tokens, 4]."""
        assert self.pos is not None
        return on_every_axis(self.pos) if self.axes is None else self.axes


def on_every_axis(pos: I32Array) -> I32Array:
    """The positions of a text: the same on every axis, i32[n_tokens, 4]."""
    return np.repeat(pos, N_AXES).reshape(-1, N_AXES)


def _positions(pos: Positions, n: int) -> tuple[I32Array | None, I32Array | None]:
    """(positions i32[n] or None, positions on every axis i32[n, 4] or None). Raises: BatchError."""
    if pos is None:
        return None, None
    if isinstance(pos, (int, np.integer)):
        if not 0 <= pos <= 2**31 - 1 - n:
            raise BatchError(f"position {pos} is out of range")
        return np.arange(pos, pos + n, dtype=np.int32), None
    try:
        given = np.ascontiguousarray(pos, dtype=np.int32)
    except (OverflowError, ValueError, TypeError) as error:
        raise BatchError(f"positions must be 32-bit integers: {error}") from None
    if given.shape == (n,):
        return given, None
    if given.shape not in ((3, n), (4, n)):
        raise BatchError(f"{n} tokens but positions of shape {given.shape}")
    axes = on_every_axis(given[0])
    axes[:, : len(given)] = given.T
    return axes[:, 0].copy(), None if (axes[:, :3] == axes[:, :1]).all() else axes


@dataclass(frozen=True, slots=True, eq=False)
class UBatch:
    """A micro batch: tokens sorted so that each sequence's stand together, in the order of their positions.

    Attributes:
        n_tokens: how many.
        tokens: i32[n_tokens] or None; embd: f32[n_tokens, n_embd] or None.
        pos: i32[n_tokens].
        segments: (seq_id, t0, n) of each sequence: tokens [t0, t0 + n) are its.
        seq_ids: per token.
        out_ids: i32[n_outputs]: the rows whose output is asked for, in the caller's order.
        out_tokens: i32[n_outputs]: which tokens of the batch these are.
        axes: i32[n_tokens, 4], as in `Batch`, or None.
    """

    n_tokens: int
    tokens: I32Array | None
    embd: F32Array | None
    pos: I32Array
    segments: tuple[tuple[int, int, int], ...]
    seq_ids: tuple[tuple[int, ...], ...]
    out_ids: I32Array
    out_tokens: I32Array
    axes: I32Array | None = None
