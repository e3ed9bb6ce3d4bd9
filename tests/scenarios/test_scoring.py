"""Texts judged by their log-probabilities: perplexity, KL divergence, and the choice between endings."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

import engine
from engine.types import F32Array, F64Array
from tests.engine.oracle_cases import DATA, context, model
from tests.models import SMOLLM2, real_model
from tests.scenarios.numpy_llama import NumpyLlama
from tests.scenarios.support import EXPECTED, PROMPT, Batch


def log_softmax(logits: F32Array | F64Array) -> F64Array:
    """log p of every token in each row, in float64."""
    x = np.asarray(logits, np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)), np.float64)


def perplexity(logits: F32Array, tokens: Sequence[int]) -> float:
    """Of tokens[1:], each given those before it."""
    rows = log_softmax(logits[:-1])
    return float(np.exp(-rows[np.arange(len(rows)), list(tokens[1:])].mean()))


def ending_scores(ctx: engine.Context, start: Sequence[int], endings: Sequence[Sequence[int]]) -> list[float]:
    """log p of each ending behind the common start, all in two batches; the start is computed and stored once."""
    ctx.get_kv_self().clear()
    everyone = tuple(range(len(endings)))
    ctx.decode(Batch.from_tokens(start, seq_id=everyone))
    firsts = log_softmax(ctx.get_logits_ith(-1))
    ctx.decode(Batch.join([Batch.from_tokens(e, None, s, "all") for s, e in enumerate(endings)]))
    assert engine.kv_self_used_cells(ctx) == len(start) + sum(map(len, endings))
    rows, at, scores = log_softmax(ctx.get_logits()), 0, []
    for ending in endings:
        inner = rows[np.arange(at, at + len(ending) - 1), list(ending[1:])].sum()
        scores.append(float(firsts[ending[0]] + inner))
        at += len(ending)
    return scores


def test_perplexity_over_chunks_is_that_of_the_whole() -> None:
    want = perplexity(EXPECTED, PROMPT)
    for n_chunk in (24, 7):
        ctx = context("llama")
        rows = []
        for at in range(0, len(PROMPT), n_chunk):
            ctx.decode(Batch.from_tokens(PROMPT[at : at + n_chunk], None, logits="all"))
            rows.append(ctx.get_logits().copy())
        assert perplexity(np.concatenate(rows), PROMPT) == pytest.approx(want, rel=1e-5)


def test_kl_divergence_between_a_model_and_its_adapted_self() -> None:
    """Base and adapted logits from one context; the truth from transformers' logits of both."""
    folder = DATA / "llama-lora"
    tokens = json.loads((folder / "case.json").read_text())["tokens"]
    adapter = engine.load_lora(model("llama"), folder / "adapter.gguf")
    ctx = context("llama")
    found = {}
    for scale in (1.0, 0.5):
        ctx.get_kv_self().clear()
        ctx.set_adapter_lora(adapter, scale)
        ctx.decode(Batch.from_tokens(tokens, logits="all"))
        found[scale] = ctx.get_logits().copy()

    def divergence(base: F32Array, other: F32Array) -> tuple[float, float]:
        p, q = log_softmax(base), log_softmax(other)
        same = float((p.argmax(axis=-1) == q.argmax(axis=-1)).mean())
        return float((np.exp(p) * (p - q)).sum(axis=-1).mean()), same

    want = divergence(np.load(folder / "expected_scale_1.0.npy"), np.load(folder / "expected_scale_0.5.npy"))
    got = divergence(found[1.0], found[0.5])
    assert got[0] == pytest.approx(want[0], rel=1e-4) and got[1] == want[1]
    assert want[0] > 0.1 and divergence(found[1.0], found[1.0]) == (0.0, 1.0)


def test_endings_are_scored_as_each_alone_in_float64() -> None:
    """HellaSwag's way: the sum, or the mean for each token, of the ending's log-probabilities."""
    rng = np.random.default_rng(6)
    endings = [[int(t) for t in rng.integers(3, 500, n)] for n in (5, 3, 8, 4)]
    twin = NumpyLlama(DATA / "llama" / "model.gguf")
    wanted = []
    for ending in endings:
        twin.clear()
        rows = log_softmax(twin.decode([*PROMPT, *ending]))[len(PROMPT) - 1 : -1]
        wanted.append(float(rows[np.arange(len(ending)), ending].sum()))
    scores = ending_scores(context("llama"), PROMPT, endings)
    assert scores == pytest.approx(wanted, rel=1e-5)
    by_mean = [s / len(e) for s, e in zip(scores, endings, strict=True)]
    assert int(np.argmax(scores)) == 1 and int(np.argmax(by_mean)) == int(
        np.argmax([w / len(e) for w, e in zip(wanted, endings, strict=True)])
    )


HELLASWAG = (
    (
        "She put the kettle on the stove and waited for the water to",
        (" boil.", " sing a song.", " walk the dog.", " vote."),
    ),
    (
        "The boy kicked the ball into the net and his team",
        (" scored a goal.", " boiled the soup.", " was a pencil.", " froze."),
    ),
)
WINOGRANDE = (
    ("The trophy doesn't fit in the suitcase because the ", ("trophy", "suitcase"), " is too small.", 1),
    ("He drank the water from the glass until the ", ("water", "glass"), " was gone.", 0),
    ("The ball broke the window because the ", ("ball", "window"), " was made of glass.", 1),
)
MULTIPLE_CHOICE = (
    ("Question: What is the capital of France?\nAnswer:", (" London", " Paris", " Berlin", " Rome"), 1),
    ("Question: Which animal barks?\nAnswer:", (" The cat", " The fish", " The dog", " The bird"), 2),
    ("Question: How many days are in a week?\nAnswer:", (" seven", " nine", " twelve", " forty"), 0),
)


@pytest.mark.real
def test_a_real_model_chooses_well() -> None:
    with engine.load_model(real_model(SMOLLM2), n_threads=2) as smollm2:
        ctx = engine.create_context(smollm2, engine.ContextParams(n_ctx=128, n_seq_max=4, n_threads=2))

        def ids(text: str) -> list[int]:
            return smollm2.tokenizer.encode(text, add_special=False)

        for start, texts in HELLASWAG:
            endings = [ids(text) for text in texts]
            scores = ending_scores(ctx, ids(start), endings)
            assert int(np.argmax([s / len(e) for s, e in zip(scores, endings, strict=True)])) == 0, start
        for start, options, end, right in WINOGRANDE:
            # Only what follows the option counts: its own probability says nothing about the sentence.
            found = [ending_scores(ctx, ids(start + option), [ids(end)])[0] for option in options]
            assert int(np.argmax(found)) == right, start
        for question, answers, right in MULTIPLE_CHOICE:
            endings = [ids(text) for text in answers]
            scores = ending_scores(ctx, ids(question), endings)
            assert int(np.argmax([s / len(e) for s, e in zip(scores, endings, strict=True)])) == right, question
        ctx.close()
