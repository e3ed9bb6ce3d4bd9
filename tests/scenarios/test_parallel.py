"""Many clients at once behind one shared system prompt: each gets what it would get alone; the prompt is stored once."""

from __future__ import annotations

from collections import deque

import numpy as np

import engine
from tests.engine.oracle_cases import context
from tests.scenarios.support import PROMPT, Batch, best, greedy

N_CLIENTS, N_REQUESTS, N_PREDICT = 4, 9, 10
SYSTEM = N_CLIENTS  # the sequence that keeps the system prompt


def test_each_client_gets_the_reply_that_it_gets_alone() -> None:
    rng = np.random.default_rng(1)
    questions = [[int(t) for t in rng.integers(3, 500, int(n))] for n in rng.integers(2, 9, N_REQUESTS)]
    alone = []
    for question in questions:
        ctx = context("llama")
        alone.append(greedy(ctx, PROMPT + question, N_PREDICT))

    ctx = context("llama", n_seq_max=N_CLIENTS + 1)
    ctx.decode(Batch.from_tokens(PROMPT, seq_id=SYSTEM, logits="none"))
    waiting = deque(range(N_REQUESTS))
    busy: dict[int, int] = {}
    replies: dict[int, list[int]] = {i: [] for i in range(N_REQUESTS)}
    most_cells = 0
    while waiting or busy:
        parts = []
        for client in range(N_CLIENTS):
            if client not in busy and waiting:
                busy[client] = waiting.popleft()
                engine.kv_self_seq_cp(ctx, SYSTEM, client, -1, -1)
                parts.append((client, questions[busy[client]]))
            elif client in busy:
                parts.append((client, replies[busy[client]][-1:]))
        ctx.decode(Batch.join([Batch.from_tokens(tokens, None, client) for client, tokens in parts]))
        most_cells = max(most_cells, engine.kv_self_used_cells(ctx))
        for row, (client, _) in enumerate(parts):
            reply = replies[busy[client]]
            reply.append(best(ctx.get_logits()[row]))
            if len(reply) == N_PREDICT:
                del busy[client]
                assert engine.kv_self_seq_rm(ctx, client, -1, -1)
    assert [replies[i] for i in range(N_REQUESTS)] == alone
    assert most_cells <= len(PROMPT) + N_CLIENTS * (max(map(len, questions)) + N_PREDICT)
    assert engine.kv_self_used_cells(ctx) == len(PROMPT)
