"""Gemma 4: layers that share keys and values, and each layer's own embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.arch.gemma4 import Gemma4
from engine.context.header_graph import graph_text_of_file
from engine.errors import HparamError
from engine.gguf import GGUFWriter, open_gguf
from tests.engine.oracle_cases import DATA, context, model, nmse

PATH = DATA / "gemma4" / "model.gguf"


def test_the_last_layers_look_at_the_last_keys_of_their_kind() -> None:
    arch = model("gemma4").arch
    assert isinstance(arch, Gemma4)
    assert [arch.kv_layer(il) for il in range(6)] == [0, 1, 2, 1, 1, 2]
    assert [(layer.il, layer.d_k, layer.n_swa) for layer in arch.memory_spec(64)] == [
        (0, 16, 8),
        (1, 16, 8),
        (2, 32, 0),
    ]


def test_only_layers_with_keys_of_their_own_store_any() -> None:
    text = graph_text_of_file(PATH)
    assert [line.split()[1] for line in text.splitlines() if "= store_kv(" in line] == [
        "store_kv-0", "store_kv-1", "store_kv-2",
    ]  # fmt: skip
    assert text.count("= attn(") == 6


def test_embeddings_as_input_take_the_padding_tokens_own_embedding() -> None:
    ctx = context("gemma4")
    ctx.decode(engine.Batch.from_tokens([2, 0, 7], logits="all"))
    want = ctx.get_logits().copy()
    row = engine.read_tensor(PATH, "token_embd.weight")[:1] * np.float32(8.0)  # sqrt(n_embd)
    ctx.get_kv_self().clear()
    ctx.decode(engine.Batch.from_tokens([2], logits="none"))
    ctx.decode(engine.Batch.from_embeddings(row, 1, logits="all"))
    assert nmse(ctx.get_logits(), want[1:2]) <= 1e-10
    ctx.decode(engine.Batch.from_tokens([7], 2))
    assert nmse(ctx.get_logits(), want[2:]) <= 1e-10


def test_sharing_that_leaves_a_kind_without_keys_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "gemma4")
    with open_gguf(PATH) as gguf:
        for key, value in gguf.metadata.items():
            if key.startswith("gemma4.") and key != "gemma4.attention.shared_kv_layers":
                writer.add(key, value)
        writer.add("gemma4.attention.shared_kv_layers", 4)
        writer.add("gemma4.vocab_size", 513)
        writer.write()
    with open_gguf(tmp_path / "model.gguf") as gguf, pytest.raises(HparamError, match="without keys"):
        Gemma4(gguf)
