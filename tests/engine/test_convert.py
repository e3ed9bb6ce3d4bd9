"""Converting a BERT folder: names, types and vocabulary of the result; damaged files are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.__main__ import main
from engine.convert.bert import convert_bert
from engine.convert.safetensors import SafetensorsFile
from engine.errors import EngineError, GGUFFormatError, HparamError, UnsupportedArchitectureError
from engine.types import F32Array

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "bri", "##ck", "##s"]
N_EMBD, N_FF = 8, 16


def tensors(architecture: str) -> dict[str, F32Array]:
    """A BERT of one layer by transformers' names."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), N_EMBD),
        "embeddings.position_embeddings.weight": (32, N_EMBD),
        "embeddings.token_type_embeddings.weight": (2, N_EMBD),
        "pooler.dense.weight": (N_EMBD, N_EMBD),
        "pooler.dense.bias": (N_EMBD,),
    }
    layer = {"attention.self.query": N_EMBD, "attention.self.key": N_EMBD, "attention.self.value": N_EMBD,
             "attention.output.dense": N_EMBD, "intermediate.dense": N_FF, "output.dense": N_EMBD}  # fmt: skip
    for part, n_out in layer.items():
        shapes[f"encoder.layer.0.{part}.weight"] = (n_out, N_FF if part == "output.dense" else N_EMBD)
        shapes[f"encoder.layer.0.{part}.bias"] = (n_out,)
    for norm in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        shapes[f"{norm}.LayerNorm.weight"] = shapes[f"{norm}.LayerNorm.bias"] = (N_EMBD,)
    prefix = ""
    if architecture == "BertForSequenceClassification":
        prefix = "bert."
    rng = np.random.default_rng(1)
    values = {prefix + name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    if prefix:
        values["classifier.weight"] = np.ones((2, N_EMBD), np.float32)
    return values


def write_safetensors(path: Path, values: dict[str, F32Array]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, value in values.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in values.values()))


def make_folder(folder: Path, architecture: str = "BertModel") -> dict[str, F32Array]:
    values = tensors(architecture)
    write_safetensors(folder / "model.safetensors", values)
    config = {"architectures": [architecture], "hidden_act": "gelu", "num_hidden_layers": 1, "hidden_size": N_EMBD,
              "intermediate_size": N_FF, "num_attention_heads": 2, "max_position_embeddings": 32}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "strip_accents": None}))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return values


def test_a_folder_becomes_a_model_that_encodes(tmp_path: Path) -> None:
    values = make_folder(tmp_path)
    assert main(["convert", str(tmp_path), str(tmp_path / "out.gguf")]) == 0
    query = engine.read_tensor(tmp_path / "out.gguf", "blk.0.attn_q.weight")
    assert np.array_equal(query, values["encoder.layer.0.attention.self.query.weight"])
    with engine.load_model(tmp_path / "out.gguf") as model:
        assert model.tokenizer.encode("Réd bricks?") == [2, 5, 6, 7, 8, 1, 3]
        assert "cls.weight" not in model.weight_infos
        ctx = engine.create_context(model, engine.ContextParams(pooling="mean"))
        ctx.encode(engine.Batch.from_tokens([2, 5, 3]))
        assert np.isfinite(ctx.get_embeddings_seq(0)).all()
        ctx.close()


def test_a_classifier_becomes_a_ranker(tmp_path: Path) -> None:
    make_folder(tmp_path, "BertForSequenceClassification")
    convert_bert(tmp_path, tmp_path / "out.gguf")
    with engine.load_model(tmp_path / "out.gguf") as model:
        assert (model.arch.n_cls_out, model.gguf.get_int("bert.pooling_type")) == (2, 4)


def test_the_pooling_is_taken_over(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    modes = tmp_path / "1_Pooling" / "config.json"
    modes.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    convert_bert(tmp_path, tmp_path / "out.gguf")
    with engine.load_model(tmp_path / "out.gguf") as model:
        assert model.gguf.get_int("bert.pooling_type") == 2
    modes.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(HparamError, match="pooling_mode_max_tokens"):
        convert_bert(tmp_path, tmp_path / "out.gguf")


def test_other_models_are_refused_by_name(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(UnsupportedArchitectureError, match="LlamaForCausalLM"):
        convert_bert(tmp_path, tmp_path / "out.gguf")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(HparamError, match="is no object"):
        convert_bert(tmp_path, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1, 1, 1, 1, 1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]},
        {"dtype": "F8", "shape": [8], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": 2},
        7,
    ],
)
def test_entries_that_do_not_fit_their_data_are_refused(entry: object, tmp_path: Path) -> None:
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(GGUFFormatError, match="tensor 'a'"):
        SafetensorsFile(tmp_path / "x")


def test_a_damaged_file_is_refused_or_read_but_never_worse(tmp_path: Path) -> None:
    make_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    good = path.read_bytes()
    rng = np.random.default_rng(2)
    for i in range(300):
        bad = bytearray(good[: int(rng.integers(1, len(good)))] if i % 3 == 0 else good)
        for at in rng.integers(0, min(len(bad), 1500), 2):
            bad[at] = int(rng.integers(0, 256))
        path.write_bytes(bad)
        try:
            convert_bert(tmp_path, tmp_path / "out.gguf")
        except EngineError:
            continue
