"""Random histories of texts and images: what a sequence remembers is what a fresh context makes of it."""

from __future__ import annotations

import random

import numpy as np
import pytest

import engine
from engine.batch import Batch
from engine.types import F32Logits
from tests.engine.oracle_cases import context, nmse

Item = tuple[int, int, int]
"""Rows, columns and the seed of an image's embeddings; a token's id as (0, 0, id)."""

N_SEQ = 3
PROBE = (11, 250, 3)


def batches(history: list[Item], start: int, seq_id: int) -> tuple[list[Batch], int]:
    """The batches of a history that begins at a position, and the position behind it."""
    made = []
    for rows, columns, what in history:
        if not rows:
            made.append(Batch.from_tokens([what], start, seq_id))
            start += 1
            continue
        row, column = np.divmod(np.arange(rows * columns), columns)
        axes = start + np.stack([np.zeros_like(row), row, column])
        embd = np.random.default_rng(what).standard_normal((rows * columns, 64), np.float32) * 0.3
        cut = what % (rows * columns)
        for part in (slice(0, cut), slice(cut, None)) if cut else (slice(None),):
            made.append(Batch.from_embeddings(embd[part], axes[:, part].astype(np.int32), seq_id, "last"))
        start += max(rows, columns)
    return made, start


def decode(ctx: engine.Context, history: list[Item], start: int, seq_id: int) -> None:
    for batch in batches(history, start, seq_id)[0]:
        ctx.decode(batch)


def end(history: list[Item]) -> int:
    return batches(history, 0, 0)[1]


def probe(ctx: engine.Context, seq_id: int) -> F32Logits:
    ctx.decode(Batch.from_tokens(PROBE, None, seq_id, "all"))
    return ctx.get_logits().copy()


def random_items(rng: random.Random) -> list[Item]:
    if rng.random() < 0.4:
        return [(rng.randint(1, 5), rng.randint(1, 5), rng.randrange(1000))]
    return [(0, 0, rng.randrange(380)) for _ in range(rng.randint(1, 9))]


@pytest.mark.parametrize("seed", range(4))
def test_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    ctx = context("qwen2vl", n_ctx=512, n_ubatch=rng.choice((4, 64)))
    histories: list[list[Item]] = [[] for _ in range(N_SEQ)]
    for _ in range(40):
        seq_id, other = rng.sample(range(N_SEQ), 2)
        history, kv = histories[seq_id], ctx.get_kv_self()
        match rng.choice(("add", "add", "add", "remove", "fork", "save", "clone", "defrag")):
            case "add":
                items = random_items(rng)
                decode(ctx, items, end(history), seq_id)
                history += items
            case "remove" if history:
                n = rng.randrange(len(history))
                assert kv.seq_rm(seq_id, end(history[:n]), -1)
                del history[n:]
            case "fork":
                assert kv.seq_rm(other, -1, -1)
                kv.seq_cp(seq_id, other, -1, -1)
                histories[other] = list(history)
            case "save":
                ctx.state_seq_set_data(other, ctx.state_seq_get_data(seq_id))
                histories[other] = list(history)
            case "clone":
                old = ctx.set_kv_self(kv.clone())
                assert old is not None
                old.close()
            case "defrag":
                kv.defrag()
        for s, kept in enumerate(histories):
            assert ctx.get_kv_self().seq_pos_max(s) == end(kept) - 1
    assert any(rows for kept in histories for rows, _, _ in kept)
    fresh = context("qwen2vl", n_ctx=512)
    for s, kept in enumerate(histories):
        if kept:
            decode(fresh, kept, 0, s)
            assert nmse(probe(ctx, s), probe(fresh, s)) < 1e-10
