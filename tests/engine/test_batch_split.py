"""How batches are cut: every token once and in order, and whatever the cut, the answers and their order are the same."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import engine
from engine.batch import UBatch
from engine.batch_split import SplitPolicy, split
from engine.errors import BatchError
from tests.engine.memory_kinds import KINDS, MemoryKind
from tests.engine.oracle_cases import context, nmse

Batch = engine.Batch
TOKENS = [int(t) for t in np.random.default_rng(4).integers(1, 256, 200)]
SETS = st.sampled_from([(0,), (1,), (2,), (0, 1), (2, 0, 3)])


def tokens_of(ubatch: UBatch) -> list[int]:
    """Ids, which in these tests are places in the batch."""
    assert ubatch.tokens is not None
    return [int(token) for token in ubatch.tokens]


@pytest.mark.parametrize("policy", SplitPolicy)
@settings(max_examples=60, deadline=None)
@given(sets=st.lists(SETS, min_size=1, max_size=40), n_ubatch=st.integers(1, 12), data=st.data())
def test_every_token_once_and_in_order(
    policy: SplitPolicy, sets: list[tuple[int, ...]], n_ubatch: int, data: st.DataObject
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets)))
    n = len(sets)
    pos = np.array([sum(ids[0] in other for other in sets[:i]) for i, ids in enumerate(sets)], np.int32)
    batch = Batch(np.arange(n, dtype=np.int32), None, pos, tuple(sets), np.array(flags))
    ubatches = list(split(batch, pos, n_ubatch, policy))
    order = [token for ubatch in ubatches for token in tokens_of(ubatch)]
    assert sorted(order) == list(range(n))
    for s in range(4):
        mine = [token for token in order if s in sets[token]]
        assert policy is SplitPolicy.SIMPLE or mine == sorted(mine)
    for ubatch in ubatches:
        tokens = tokens_of(ubatch)
        assert 0 < ubatch.n_tokens == len(tokens) <= n_ubatch
        assert ubatch.pos.tolist() == pos[tokens].tolist() and ubatch.seq_ids == tuple(sets[t] for t in tokens)
        asked = [tokens[row] for row in ubatch.out_ids]
        assert asked == ubatch.out_tokens.tolist() == sorted(t for t in tokens if flags[t])
        _check_segments(ubatch, policy)


def _check_segments(ubatch: UBatch, policy: SplitPolicy) -> None:
    ends = [(t0, t0 + n) for _, t0, n in ubatch.segments]
    assert ends[0][0] == 0 and ends[-1][1] == ubatch.n_tokens and all(a[1] == b[0] for a, b in pairwise(ends))
    sets = [set(ubatch.seq_ids[t0:t1]) for t0, t1 in ends]
    assert all({ids[0] for ids in found} == {s} for found, (s, _, _) in zip(sets, ubatch.segments, strict=True))
    if policy is SplitPolicy.SIMPLE:
        return
    assert all(len(found) == 1 for found in sets)
    assert len({n for _, _, n in ubatch.segments}) == 1
    members = [s for found in sets for ids in found for s in ids]
    assert len(members) == len(set(members))
    assert policy is SplitPolicy.EQUAL or len(sets) == 1


@pytest.mark.parametrize("n_ubatch", [256, 16, 5, 1])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_shared_prompt_and_what_follows_it_in_one_batch(kind: MemoryKind, n_ubatch: int) -> None:
    """In turns, so that the tokens of a sequence lie apart; the outputs come in the caller's order."""
    ctx, alone = kind.context(n_ubatch=n_ubatch), kind.context()
    parts = [Batch.from_tokens(TOKENS[:20], seq_id=(0, 1, 2), logits="all")]
    tails = {0: TOKENS[20:29], 1: TOKENS[40:44], 2: TOKENS[60:75]}
    for i in range(15):
        parts += [Batch.from_tokens([tail[i]], 20 + i, s) for s, tail in tails.items() if i < len(tail)]
    ctx.decode(Batch.join(parts))
    got = ctx.get_logits()
    row = 20
    want: dict[int, np.ndarray[tuple[int, int], np.dtype[np.float32]]] = {}
    for s, tail in tails.items():
        alone.get_kv_self().clear()
        alone.decode(Batch.from_tokens(TOKENS[:20] + tail, logits="all"))
        want[s] = alone.get_logits().copy()
        assert nmse(got[:20], want[s][:20]) < 1e-10
    for i in range(15):
        for s, tail in tails.items():
            if i < len(tail):
                assert nmse(got[row], want[s][20 + i]) < 1e-10
                row += 1
    assert row == len(got)
    assert [ctx.get_kv_self().seq_pos_max(s) for s in range(3)] == [28, 23, 34]


def test_more_text_than_a_micro_batch_is_encoded_sequence_by_sequence() -> None:
    whole, cut = (context("bert-cls", n_ubatch=n_ubatch, pooling="mean") for n_ubatch in (64, 12))
    texts = [TOKENS[:12], TOKENS[20:31], TOKENS[40:43]]
    batch = Batch.join([Batch.from_tokens(text, seq_id=s) for s, text in enumerate(texts)])
    for ctx in (whole, cut):
        ctx.encode(batch)
    assert nmse(cut.get_embeddings(), whole.get_embeddings()) < 1e-10
    for s in range(3):
        assert nmse(cut.get_embeddings_seq(s), whole.get_embeddings_seq(s)) < 1e-10
    with pytest.raises(BatchError, match="13 tokens of sequence 1 see each other, n_ubatch is 12"):
        cut.encode(Batch.join([Batch.from_tokens(TOKENS[:5]), Batch.from_tokens(TOKENS[:13], seq_id=1)]))
