"""Is a batch consistent with itself and with what the memory holds? One sentence says which token is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.errors import BatchError, ContextFullError
from engine.types import I32Array

if TYPE_CHECKING:
    from engine.batch import Batch
    from engine.hparams import HParams
    from engine.memory import Memory


def check_batch(batch: Batch, memory: Memory, n_ctx: int, n_seq_max: int, hp: HParams) -> I32Array:
    """Check a batch and give its positions.

    Args:
        batch: what was asked for.
        memory: what each sequence holds.
        n_ctx: positions a sequence may have.
        n_seq_max: sequences there may be.
        hp: for the ranges of ids and the width of embeddings.

    Returns:
        i32[n_tokens] positions; automatic ones go on where the sequence ends.

    Raises:
        BatchError: an id, a sequence or a position out of range or out of order.
        ContextFullError: a position beyond n_ctx.
    """
    if batch.tokens is not None:
        if batch.n_tokens == 1:
            low = high = int(batch.tokens[0])
        else:
            low, high = int(batch.tokens.min()), int(batch.tokens.max())
        if low < 0 or high >= hp.n_vocab:
            i = int(np.flatnonzero((batch.tokens < 0) | (batch.tokens >= hp.n_vocab))[0])
            raise BatchError(f"token {i} has id {int(batch.tokens[i])}; the vocabulary has 0 to {hp.n_vocab - 1}")
    elif batch.embd is not None and batch.embd.shape[1] != hp.n_embd:
        raise BatchError(f"embeddings have {batch.embd.shape[1]} values; the model has n_embd {hp.n_embd}")
    groups = set(batch.seq_ids)
    for ids in groups:
        for seq_id in ids:
            if not 0 <= seq_id < n_seq_max:
                raise BatchError(f"sequence {seq_id} is out of range: n_seq_max is {n_seq_max}")
    if len(groups) == 1:
        return _check_one(batch, memory, n_ctx)
    return _check_many(batch, memory, n_ctx)


def _check_one(batch: Batch, memory: Memory, n_ctx: int) -> I32Array:
    ids = batch.seq_ids[0]
    start = memory.seq_pos_max(ids[0]) + 1
    for other in ids[1:]:
        if memory.seq_pos_max(other) + 1 != start:
            raise BatchError(f"sequences {ids[0]} and {other} share a token but end at different positions")
    n = batch.n_tokens
    pos = batch.pos
    if pos is None:
        pos = np.arange(start, start + n, dtype=np.int32)
    elif int(pos[0]) != start and (start > 0 or int(pos[0]) < 0):
        raise BatchError(f"token 0 of sequence {ids[0]} has position {int(pos[0])}, the sequence goes on at {start}")
    elif n > 1 and not (np.diff(pos) == 1).all():
        i = int(np.flatnonzero(np.diff(pos) != 1)[0])
        raise BatchError(
            f"token {i + 1} of sequence {ids[0]} has position {int(pos[i + 1])} after {int(pos[i])}: no gaps, no repeats"
        )
    if int(pos[-1]) >= n_ctx:
        raise ContextFullError(int(pos[-1]) + 1, n_ctx, "positions")
    return pos


def _check_many(batch: Batch, memory: Memory, n_ctx: int) -> I32Array:
    following: dict[int, int] = {}
    fresh: set[int] = set()
    pos = np.empty(batch.n_tokens, dtype=np.int32)
    for i, ids in enumerate(batch.seq_ids):
        for seq_id in ids:
            if seq_id not in following:
                following[seq_id] = memory.seq_pos_max(seq_id) + 1
                if following[seq_id] == 0:
                    fresh.add(seq_id)
        at = following[ids[0]] if batch.pos is None else int(batch.pos[i])
        for seq_id in ids:
            if seq_id in fresh and at >= 0:
                fresh.discard(seq_id)
            elif following[seq_id] != at:
                raise BatchError(
                    f"token {i} of sequence {seq_id} has position {at}, the sequence goes on at {following[seq_id]}"
                )
            following[seq_id] = at + 1
        if at >= n_ctx:
            raise ContextFullError(at + 1, n_ctx, "positions")
        pos[i] = at
    return pos
