"""T5 against numpy: long sources and answers, halves of different depth, the encoder alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.gguf import GGUFWriter, open_gguf
from engine.types import F32Array, QuantType
from tests.engine.oracle_cases import DATA, load_case, nmse
from tests.engine.t5_numpy import NumpyT5

Batch = engine.Batch


def weights_of(path: Path) -> dict[str, F32Array]:
    with open_gguf(path) as gguf:
        return {name: engine.read_tensor(path, name) for name in gguf.tensors}


def rewrite(path: Path, to: Path, arch: str, drop: str, **changed: int) -> None:
    """The model without tensors that begin with `drop`, under another architecture's name, with other parameters."""
    writer = GGUFWriter(to, arch)
    with open_gguf(path) as gguf:
        for key, value in gguf.metadata.items():
            name = key.removeprefix("t5.")
            if key.startswith("t5."):
                writer.add(f"{arch}.{name}", changed.get(name, value))
        for name, info in gguf.tensors.items():
            if not name.startswith(drop):
                values = engine.read_tensor(path, name)
                writer.add_tensor(name, QuantType.F32, values, info.shape)
        writer.write()


@pytest.mark.parametrize("name", ["t5", "t5-gated"])
def test_long_sources_and_answers_are_right(name: str) -> None:
    """Beyond the farthest bucket and across chunks of attention, in parts and then one by one."""
    path = DATA / name / "model.gguf"
    rng = np.random.default_rng(6)
    source, tokens = rng.integers(0, 160, 300).tolist(), rng.integers(0, 160, 270).tolist()
    oracle = NumpyT5(weights_of(path), 2, 2)
    rows = oracle.encode(source)
    want = oracle.decode(tokens, rows).astype(np.float32)
    with engine.load_model(path, n_threads=2) as model:
        params = engine.ContextParams(n_ctx=512, n_batch=512, n_ubatch=100, type_k="f32", type_v="f32")
        ctx = engine.create_context(model, params)
        ctx.encode(Batch.from_tokens(source))
        assert isinstance(ctx, engine.ContextEncDec)
        assert nmse(ctx.get_ctx_enc().get_embeddings(), rows.astype(np.float32)) <= 1e-10
        ctx.decode(Batch.from_tokens(tokens[:262], logits="all"))
        assert nmse(ctx.get_logits(), want[:262]) <= 1e-10
        for i in range(262, 270):
            ctx.decode(Batch.from_tokens([tokens[i]], i))
            assert nmse(ctx.get_logits(), want[i : i + 1]) <= 1e-10
        assert ctx.perf_get_data().n_p_eval == 562
        ctx.close()


@pytest.mark.parametrize(("n_enc", "n_dec"), [(2, 1), (1, 2)])
def test_halves_of_different_depth(n_enc: int, n_dec: int, tmp_path: Path) -> None:
    path = DATA / "t5" / "model.gguf"
    drop = "dec.blk.1." if n_dec == 1 else "enc.blk.1."
    rewrite(path, tmp_path / "shallow.gguf", "t5", drop, block_count=n_enc, decoder_block_count=n_dec)
    case, _ = load_case("t5")
    source, tokens = np.array(case["encoder_tokens"]).tolist(), np.array(case["decoder_tokens"]).tolist()
    oracle = NumpyT5(weights_of(path), n_enc, n_dec)
    want = oracle.decode(tokens, oracle.encode(source)).astype(np.float32)
    with engine.load_model(tmp_path / "shallow.gguf") as model:
        ctx = engine.create_context(model, engine.ContextParams(n_ctx=64, type_k="f32", type_v="f32"))
        ctx.encode(Batch.from_tokens(source))
        ctx.decode(Batch.from_tokens(tokens, logits="all"))
        assert nmse(ctx.get_logits(), want) <= 1e-10
        ctx.close()


def test_the_encoder_alone_is_an_architecture_of_its_own(tmp_path: Path) -> None:
    path = DATA / "t5-gated" / "model.gguf"
    rewrite(path, tmp_path / "encoder.gguf", "t5encoder", "dec.")
    source = np.array(load_case("t5-gated")[0]["encoder_tokens"]).tolist()
    want = NumpyT5(weights_of(path), 2, 2).encode(source)
    with engine.load_model(tmp_path / "encoder.gguf") as model:
        ctx = engine.create_context(model, engine.ContextParams(n_ctx=64, pooling="mean"))
        assert type(ctx) is engine.ContextEnc
        ctx.encode(Batch.from_tokens(source))
        assert nmse(ctx.get_embeddings(), want.astype(np.float32)) <= 1e-10
        assert nmse(ctx.get_embeddings_seq(0), want.mean(axis=0).astype(np.float32)) <= 1e-10
        ctx.close()
