"""Encoders: hidden rows, every pooling, several sequences at once, the real MiniLM against float64."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.__main__ import main
from engine.embedding import Embedder
from engine.errors import BatchError, ParamError, UnsupportedCallError
from engine.gguf import GGUFWriter, open_gguf
from engine.types import F32Array, QuantType
from tests.engine.oracle_cases import DATA, load_case, model, nmse, tokens_of
from tests.models import MINILM, real_model

Batch = engine.Batch
EXACT = 1e-11
ROWS: F32Array = np.load(DATA / "bert-cls" / "expected_tokens.npy")


def encoder(pooling: str, **more: object) -> engine.Context:
    params: dict[str, object] = {"n_ctx": 64, "n_seq_max": 4, "n_threads": 2, "pooling": pooling, **more}
    return engine.create_context(model("bert-cls"), engine.ContextParams(**params))  # type: ignore[arg-type]


def test_each_pooling_makes_one_row_of_a_sequence() -> None:
    case, want = load_case("bert-cls")
    wanted = {"mean": ROWS.mean(axis=0), "cls": want, "last": ROWS[-1]}
    for pooling, row in wanted.items():
        ctx = encoder(pooling)
        assert ctx.pooling_type() == pooling
        ctx.encode(Batch.from_tokens(tokens_of(case)))
        assert nmse(ctx.get_embeddings(), ROWS) < EXACT
        assert nmse(ctx.get_embeddings_ith(5), ROWS[5]) < EXACT
        assert nmse(ctx.get_embeddings_seq(0), row) < EXACT
        with pytest.raises(BatchError, match="sequence 1 has no output"):
            ctx.get_embeddings_seq(1)


def test_sequences_in_one_batch_do_not_see_each_other() -> None:
    case, want = load_case("bert-cls")
    tokens = tokens_of(case)
    ctx = encoder("cls")
    others = [Batch.from_tokens(tokens[:n], seq_id=s) for n, s in ((9, 0), (17, 2))]
    ctx.encode(Batch.join([others[0], Batch.from_tokens(tokens, seq_id=1), others[1]]))
    assert nmse(ctx.get_embeddings_seq(1), want) < EXACT
    alone = encoder("cls")
    alone.encode(Batch.from_tokens(tokens[:17]))
    assert nmse(ctx.get_embeddings_seq(2), alone.get_embeddings_seq(0)) < EXACT


def test_what_an_encoder_has_not_is_refused() -> None:
    ctx = encoder("none")
    batch = Batch.from_tokens([2, 5, 3])
    ctx.encode(batch)
    for call in (ctx.get_logits, lambda: ctx.get_logits_ith(0), lambda: ctx.set_embeddings(False),
                 lambda: ctx.get_embeddings_seq(0), lambda: ctx.decode(batch), ctx.get_kv_self):  # fmt: skip
        with pytest.raises(UnsupportedCallError, match="ContextEnc"):
            call()
    with pytest.raises(ParamError, match="classification head"):
        encoder("rank")
    with pytest.raises(BatchError, match="n_ubatch is 4"):
        encoder("none", n_ubatch=4).encode(Batch.from_tokens([2, 5, 6, 7, 3]))


def test_rank_gives_the_scores_of_the_classifier(tmp_path: Path) -> None:
    """tanh(W h + b) of the first row, then the classifier's matrix: as BertForSequenceClassification."""
    rng = np.random.default_rng(5)
    head = {"cls.weight": (64, 64), "cls.bias": (64,), "cls.output.weight": (3, 64), "cls.output.bias": (3,)}
    values = {name: rng.standard_normal(shape, dtype=np.float32) / 8 for name, shape in head.items()}
    with open_gguf(model("bert-cls").path) as source:
        writer = GGUFWriter(tmp_path / "rank.gguf", "bert")
        for key, value in source.metadata.items():
            if key != "general.architecture":
                writer.add(key, 4 if key == "bert.pooling_type" else value)
        for name, info in source.tensors.items():
            writer.add_tensor(name, info.type, source.tensor_data(name), info.shape)
        for name, value in values.items():
            writer.add_tensor(name, QuantType.F32, value)
        writer.write()
    case, _ = load_case("bert-cls")
    with engine.load_model(tmp_path / "rank.gguf", n_threads=2) as ranker:
        ctx = engine.create_context(ranker, engine.ContextParams(n_ctx=64, n_seq_max=2, pooling="rank"))
        ctx.encode(Batch.join([Batch.from_tokens([2, 9, 3], seq_id=0), Batch.from_tokens(tokens_of(case), seq_id=1)]))
        hidden = np.tanh(ROWS[0] @ values["cls.weight"].T + values["cls.bias"])
        want = hidden @ values["cls.output.weight"].T + values["cls.output.bias"]
        assert ctx.get_embeddings_seq(1).shape == (3,)
        assert nmse(ctx.get_embeddings_seq(1), want) < EXACT
        ctx.close()
        embedder = Embedder(ranker)
        assert embedder.pooling == "rank"
        assert nmse(embedder.embed(tokens_of(case)), want) < EXACT
        embedder.close()


@pytest.mark.real
def test_the_real_minilm_gives_the_right_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    path = real_model(MINILM)
    case = json.loads((DATA / "minilm" / "case.json").read_text())
    want: F32Array = np.load(DATA / "minilm" / "expected.npy")
    with engine.load_model(path, n_threads=2) as minilm:
        for text, ids in zip(case["texts"], case["tokens"], strict=True):
            assert minilm.tokenizer.encode(text) == ids
        n = sum(map(len, case["tokens"]))
        ctx = engine.create_context(minilm, engine.ContextParams(n_ctx=n, n_seq_max=len(want), pooling="mean"))
        ctx.encode(Batch.join([Batch.from_tokens(ids, seq_id=i) for i, ids in enumerate(case["tokens"])]))
        got = np.stack([ctx.get_embeddings_seq(i) for i in range(len(want))])
        ctx.close()
    got /= np.linalg.norm(got, axis=1, keepdims=True)
    assert np.abs((got * want).sum(axis=1) - 1).max() < 1e-6
    assert main(["embed", str(path), case["texts"][3], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["pooling"] == "mean" and float(np.dot(printed["embedding"], want[3])) > 1 - 1e-6
