"""A text read through twenty times the context: the system prompt stays, memory stays flat, and the model reads as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine import ContextParams, Model, create_context, load_model
from engine.session import Session
from engine.turns import Turn
from engine.types import F32Array
from tests.models import ROOT, SMOLLM2, real_model

pytestmark = pytest.mark.real

N_CTX, N_TURN, N_WINDOWS, N_COMPARED = 128, 16, 20, 24
SYSTEM = "The following is the documentation of a program."


def read(session: Session, turns: list[Turn]) -> float:
    """Give a session what is new of the turns; the surprise of the last turn's tokens but the first, in all."""
    session.begin(turns, 0)
    rows: list[F32Array] = []
    while session.pending:
        batch = session.next_batch(256)
        session.ctx.decode(replace(batch, logits=np.ones(batch.n_tokens, np.bool_)))
        rows.append(session.ctx.get_logits().astype(np.float64))
        session.mark_decoded(batch.n_tokens)
    logits, ids = np.concatenate(rows)[-N_TURN:-1], np.array(turns[-1].tokens[1:])
    top = logits.max(1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(1))
    return float((log_sum - logits[np.arange(len(ids)), ids]).sum())


def soak(model: Model, n_ctx: int, text_ids: list[int]) -> tuple[float, float, list[int]]:
    """Read a text through a session; its perplexity and that of fresh ones over the last turns, and cells in use."""
    system = Turn("s", tuple(model.tokenizer.encode(SYSTEM)), pinned=True)
    session = Session(create_context(model, ContextParams(n_ctx=n_ctx)))
    chunks = [text_ids[i : i + N_TURN] for i in range(0, len(text_ids) - N_TURN + 1, N_TURN)]
    turns, cells = [system], []
    worn, fresh = [], []
    for i, chunk in enumerate(chunks):
        turns.append(Turn(str(i), tuple(chunk)))
        surprise = read(session, turns)
        cells.append(session.ctx.get_kv_self().stats().used_bytes)
        assert session.tokens[: len(system.tokens)] == list(system.tokens)
        if i >= len(chunks) - N_COMPARED:
            kept = [turn for turn in turns if turn.key not in session.out_keys]
            other = Session(create_context(model, ContextParams(n_ctx=n_ctx)))
            fresh.append(read(other, kept))
            assert other.tokens == session.tokens
            other.ctx.close()
            worn.append(surprise)
    assert len(session.out_keys) > 0.8 * len(chunks)
    session.ctx.close()
    n = N_COMPARED * (N_TURN - 1)
    return float(np.exp(sum(worn) / n)), float(np.exp(sum(fresh) / n)), cells


def test_a_text_of_twenty_contexts() -> None:
    with load_model(real_model(SMOLLM2)) as model:
        text = "\n".join((ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"))
        ids = model.tokenizer.encode(text)[: N_CTX * N_WINDOWS]
        assert len(ids) == N_CTX * N_WINDOWS
        worn, fresh, used_bytes = soak(model, N_CTX, ids)
    assert worn < 1.1 * fresh
    assert max(used_bytes[len(used_bytes) // 10 :]) <= max(used_bytes[: len(used_bytes) // 10]) * 1.5
