"""Embedding and generation: retrieval with an encoder, and one decoder context that does both in turn (GritLM's way)."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.types import F32Array
from tests.engine.oracle_cases import DATA, context, nmse
from tests.models import MINILM, real_model
from tests.scenarios.numpy_llama import NumpyLlama
from tests.scenarios.support import GREEDY, PROMPT, Batch, greedy

PASSAGES = (
    "The Eiffel Tower in Paris is 330 metres high and was built in 1889.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "The Python language was begun by Guido van Rossum in 1989.",
    "A whale is a mammal that lives in the sea and breathes air.",
)
QUESTIONS = (
    "How do plants make food from sunlight?",
    "Who made Python?",
    "How tall is the tower in France?",
    "What big animals swim?",
)
ANSWERS = (1, 2, 0, 3)


@pytest.mark.real
def test_the_nearest_passage_answers_the_question() -> None:
    with engine.load_model(real_model(MINILM), n_threads=2) as model:
        ctx = engine.create_context(model, engine.ContextParams(n_ctx=256, n_seq_max=8, n_threads=2, pooling="mean"))
        texts = [*PASSAGES, *QUESTIONS]
        batches = [Batch.from_tokens(model.tokenizer.encode(text), seq_id=i) for i, text in enumerate(texts)]
        ctx.encode(Batch.join(batches))
        vectors = np.stack([ctx.get_embeddings_seq(i) for i in range(len(texts))])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        near = vectors[len(PASSAGES) :] @ vectors[: len(PASSAGES)].T
        assert tuple(near.argmax(axis=1)) == ANSWERS
        ctx.close()


def embed(ctx: engine.Context, tokens: list[int]) -> F32Array:
    """The mean hidden row of tokens that all see each other; what the context generated is forgotten."""
    ctx.get_kv_self().clear()
    ctx.set_embeddings(True)
    ctx.set_causal_attn(False)
    ctx.decode(Batch.from_tokens(tokens, logits="all"))
    vector = ctx.get_embeddings_seq(0).copy()
    ctx.set_causal_attn(True)
    ctx.set_embeddings(False)
    ctx.get_kv_self().clear()
    return vector


def test_one_context_embeds_and_generates_in_turn() -> None:
    twin = NumpyLlama(DATA / "llama" / "model.gguf")
    ctx = context("llama", pooling="mean")
    for tokens in (PROMPT[:9], PROMPT[9:], PROMPT):
        twin.clear()
        twin.decode(tokens, causal=False)
        assert nmse(embed(ctx, tokens), twin.embd.mean(axis=0).astype(np.float32)) < 1e-10
        assert greedy(ctx, PROMPT, len(GREEDY)) == GREEDY
