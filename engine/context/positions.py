"""Is a batch consistent with itself and with what the memory holds? One sentence says which token is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.batch import on_every_axis
from engine.errors import BatchError, ContextFullError
from engine.types import I32Array

if TYPE_CHECKING:
    from engine.batch import Batch, UBatch
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
    if batch.axes is not None:
        return _check_axes(batch, batch.axes, memory, n_ctx, hp)
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


def _check_axes(batch: Batch, axes: I32Array, memory: Memory, n_ctx: int, hp: HParams) -> I32Array:
    """Each token must come behind the one before, on the time axis first, then by row and column; what is not of the
    same image begins behind every position before it, on every axis.
    """
    if not hp.rope.sections:
        raise BatchError("positions on several axes, but a token of this model has one position")
    sequences = sorted({seq_id for ids in batch.seq_ids for seq_id in ids})
    following = {seq_id: memory.seq_pos_max(seq_id) + 1 for seq_id in sequences}
    last = {seq_id: memory.seq_last_axes(seq_id) for seq_id in sequences}
    for i, ids in enumerate(batch.seq_ids):
        time, row, column = at = tuple(axes[i, :3].tolist())
        for seq_id in ids:
            start = following[seq_id] or time
            goes_on = last[seq_id][0] <= time < start and at > last[seq_id]
            if min(at) < 0 or not (goes_on or (time == start and row >= start and column >= start)):
                raise BatchError(
                    f"token {i} of sequence {seq_id} has position {at} after {last[seq_id]}; a new image begins at {start}"
                )
            following[seq_id], last[seq_id] = max(start, max(at) + 1), at
        if max(at) >= n_ctx:
            raise ContextFullError(max(at) + 1, n_ctx, "positions")
    return np.ascontiguousarray(axes[:, 0])


def rope_positions(ubatch: UBatch, rope_pos: I32Array, hp: HParams) -> I32Array:
    """The positions to rotate a ubatch by: i32[n_tokens], or i32[n_tokens, 4] where heads turn by several axes.

    Args:
        ubatch: what is computed.
        rope_pos: i32[n_tokens], the memory's: `pos` moved by the frame of each sequence, which moves every axis.
        hp: the model's.
    """
    if not hp.rope.sections:
        return rope_pos
    if ubatch.axes is None:
        return on_every_axis(rope_pos)
    return ubatch.axes + (rope_pos - ubatch.pos)[:, None]
