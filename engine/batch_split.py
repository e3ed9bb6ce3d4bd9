"""Cutting a batch into micro batches, by the policy of the memory that they go to.

Stands between `engine.batch` and `engine.context`, which computes one micro batch after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np

from engine.batch import ONE_OUTPUT, Batch, UBatch
from engine.types import I32Array, I64Array

_ONE_OUT_ID = np.zeros(1, dtype=np.int32)
_ONE_OUT_ID.setflags(write=False)


class SplitPolicy(Enum):
    """What a memory or a graph asks of a micro batch.

    SIMPLE: nothing; tokens are taken in the caller's order.
    EQUAL: as many tokens of each of its sequences, and no token that belongs to others than its neighbours: states.
    SEQUENCE: the tokens of one sequence alone, or of those that share them all: tokens that see what is behind them.
    """

    SIMPLE = "simple"
    EQUAL = "equal"
    SEQUENCE = "sequence"


def split(batch: Batch, pos: I32Array, n_ubatch: int, policy: SplitPolicy) -> Iterator[UBatch]:
    """Cut a batch into micro batches of at most n_ubatch tokens.

    Args:
        batch: what was asked for.
        pos: i32[n_tokens], given or automatic.
        n_ubatch: most tokens of one.
        policy: what they must be like. Each sequence's tokens keep their order whatever it is.
    """
    if batch.logits is ONE_OUTPUT:
        alone = ((batch.seq_ids[0][0], 0, 1),)
        yield UBatch(1, batch.tokens, batch.embd, pos, alone, batch.seq_ids, _ONE_OUT_ID, _ONE_OUT_ID)
    elif len(set(batch.seq_ids)) == 1:
        for t0 in range(0, batch.n_tokens, n_ubatch):
            n = min(n_ubatch, batch.n_tokens - t0)
            yield _taken(batch, pos, slice(t0, t0 + n), ((batch.seq_ids[t0][0], 0, n),), np.arange(t0, t0 + n))
    else:
        for index in (
            _simple(batch, pos, n_ubatch) if policy is SplitPolicy.SIMPLE else _by_set(batch, n_ubatch, policy)
        ):
            first = np.array([batch.seq_ids[i][0] for i in index])
            begins = np.flatnonzero(np.r_[True, np.diff(first) != 0])
            counts = np.diff(np.r_[begins, len(index)])
            segments = tuple((int(first[t0]), int(t0), int(n)) for t0, n in zip(begins, counts, strict=True))
            yield _taken(batch, pos, index, segments, index)


def _taken(
    batch: Batch, pos: I32Array, where: slice | I64Array, segments: tuple[tuple[int, int, int], ...], index: I64Array
) -> UBatch:
    """The tokens at an index array, which `where` says as well, in this order."""
    asked = np.flatnonzero(batch.logits[where])
    asked = asked[np.argsort(index[asked])]
    return UBatch(
        len(index),
        None if batch.tokens is None else batch.tokens[where],
        None if batch.embd is None else batch.embd[where],
        pos[where],
        segments,
        tuple(batch.seq_ids[i] for i in index) if isinstance(where, np.ndarray) else batch.seq_ids[where],
        asked.astype(np.int32),
        index[asked].astype(np.int32),
        None if batch.axes is None else batch.axes[where],
    )


def _simple(batch: Batch, pos: I32Array, n_ubatch: int) -> Iterator[I64Array]:
    """Tokens in the caller's order, in each micro batch sorted by sequence and position."""
    first = np.array([ids[0] for ids in batch.seq_ids])
    for t0 in range(0, batch.n_tokens, n_ubatch):
        part = slice(t0, t0 + n_ubatch)
        yield np.lexsort((pos[part], first[part])) + t0


def _by_set(batch: Batch, n_ubatch: int, policy: SplitPolicy) -> Iterator[I64Array]:
    """Runs of tokens with the same sequences, one run or several of one length, of sequences that do not overlap."""
    queues: dict[int, deque[int]] = {}
    for i, ids in enumerate(batch.seq_ids):
        for s in ids:
            queues.setdefault(s, deque()).append(i)
    n_sets_max = n_ubatch if policy is SplitPolicy.EQUAL else 1
    while heads := sorted({queue[0] for queue in queues.values() if queue}):
        ready = [ids for ids in (batch.seq_ids[i] for i in heads) if len({queues[s][0] for s in ids}) == 1]
        sets: list[tuple[int, ...]] = []
        for ids in ready:
            if len(sets) < n_sets_max and not any(set(ids) & set(other) for other in sets):
                sets.append(ids)
        n_max = n_ubatch // len(sets)
        n = min(_n_in_front(batch.seq_ids, queues, ids, n_max) for ids in sets)
        runs: list[int] = []
        for ids in sets:
            for s in ids:
                run = [queues[s].popleft() for _ in range(n)]
            runs += run
        yield np.array(runs, np.int64)


def _n_in_front(
    seq_ids: Sequence[tuple[int, ...]], queues: dict[int, deque[int]], ids: tuple[int, ...], n_max: int
) -> int:
    """How many tokens, up to n_max, stand in front of the queues of these sequences and belong to just them."""
    for n, in_front in enumerate(zip(*(queues[s] for s in ids), strict=False)):
        if n == n_max or len(set(in_front)) > 1 or seq_ids[in_front[0]] != ids:
            return n
    return min(len(queues[s]) for s in ids)
