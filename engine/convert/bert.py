"""Convert a BERT encoder from the folder of its safetensors file, configuration and WordPiece vocabulary.

Source: the tensor names of transformers' BertModel and BertForSequenceClassification, the folder layout of
sentence-transformers; names and keys of GGUF as llama.cpp reads them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypeVar

from engine.convert.safetensors import SafetensorsFile
from engine.errors import HparamError, UnsupportedArchitectureError
from engine.gguf import GGUFWriter
from engine.tokenizer.vocabulary import TokenType

ARCHITECTURES = ("BertModel", "BertForSequenceClassification")
_PARTS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "pooler.dense": "cls",
    "classifier": "cls.output",
}
_LAYER_PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_LAYER = re.compile(r"encoder\.layer\.(\d+)\.(.+)")
_POOLINGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}
_RANK = 4
"""GGUF's numbers of poolings."""

_Value = TypeVar("_Value", int, float, str, bool)


def convert_bert(folder: Path, target: Path) -> None:
    """Write the model in folder as a GGUF file; tensors keep their types.

    Raises:
        ModelFileError: a file that is damaged or does not fit the others.
        UnsupportedArchitectureError: not a BERT.
        OSError: a file that is missing or cannot be written.
    """
    config = _read_json(folder / "config.json")
    architectures = config.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else "none"
    if architecture not in ARCHITECTURES:
        raise UnsupportedArchitectureError(architecture, ARCHITECTURES)
    if _get(config, "hidden_act", "gelu", folder) != "gelu":
        raise HparamError("hidden_act", "only gelu is known", folder / "config.json")
    ranks = architecture == "BertForSequenceClassification"
    writer = GGUFWriter(target, "bert")
    writer.add("general.type", "model")
    writer.add("general.name", str(config.get("_name_or_path", folder.name)).rpartition("/")[2])
    writer.add("bert.block_count", _get(config, "num_hidden_layers", 0, folder))
    writer.add("bert.context_length", _get(config, "max_position_embeddings", 0, folder))
    writer.add("bert.embedding_length", _get(config, "hidden_size", 0, folder))
    writer.add("bert.feed_forward_length", _get(config, "intermediate_size", 0, folder))
    writer.add("bert.attention.head_count", _get(config, "num_attention_heads", 0, folder))
    writer.add("bert.attention.layer_norm_epsilon", _get(config, "layer_norm_eps", 1e-12, folder))
    writer.add("bert.attention.causal", False)
    writer.add("bert.pooling_type", _RANK if ranks else _pooling(folder))
    _add_vocabulary(writer, folder)
    weights = SafetensorsFile(folder / "model.safetensors")
    try:
        for name, (quant, shape, data) in sorted(weights.tensors.items()):
            gguf_name = _gguf_name(name.removeprefix("bert."))
            if gguf_name and (ranks or not gguf_name.startswith("cls.")):
                writer.add_tensor(gguf_name, quant, data, shape)
        writer.write()
    finally:
        del writer
        weights.close()


def _gguf_name(name: str) -> str:
    """GGUF's name of a tensor; "" for one that inference does not need."""
    part, _, side = name.rpartition(".")
    layer = _LAYER.fullmatch(part)
    if layer is not None:
        return f"blk.{int(layer[1])}.{_LAYER_PARTS[layer[2]]}.{side}" if layer[2] in _LAYER_PARTS else ""
    return f"{_PARTS[part]}.{side}" if part in _PARTS else ""


def _add_vocabulary(writer: GGUFWriter, folder: Path) -> None:
    """The WordPiece vocabulary as llama.cpp writes it: "##x" as "x", what begins a word with U+2581 in front."""
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    settings = _read_json(folder / "tokenizer_config.json")
    ids = {token: i for i, token in enumerate(vocabulary)}
    special = {
        key: ids.get(_get(settings, key, default, folder), -1)
        for key, default in (
            ("cls_token", "[CLS]"), ("sep_token", "[SEP]"), ("unk_token", "[UNK]"), ("pad_token", "[PAD]"),
            ("mask_token", "[MASK]"),
        )
    }  # fmt: skip
    missing = [key for key, token in special.items() if token < 0]
    if missing:
        raise HparamError(", ".join(missing), "is not in the vocabulary", folder / "vocab.txt")
    control = set(special.values())
    writer.add("tokenizer.ggml.model", "bert")
    writer.add("tokenizer.ggml.pre", "default")
    writer.add("tokenizer.ggml.tokens", [
        token if i in control else token[2:] if token.startswith("##") else f"\u2581{token}"
        for i, token in enumerate(vocabulary)
    ])  # fmt: skip
    writer.add("tokenizer.ggml.token_type", [
        int(TokenType.CONTROL if i in control else TokenType.NORMAL) for i in range(len(vocabulary))
    ])  # fmt: skip
    writer.add("tokenizer.ggml.token_type_count", 2)
    for key, name in (
        ("cls_token", "bos"), ("sep_token", "eos"), ("unk_token", "unknown"), ("sep_token", "seperator"),
        ("pad_token", "padding"), ("cls_token", "cls"), ("mask_token", "mask"),
    ):  # fmt: skip
        writer.add(f"tokenizer.ggml.{name}_token_id", special[key])
    lowercase = _get(settings, "do_lower_case", True, folder)
    strips = settings.get("strip_accents")
    writer.add("tokenizer.ggml.normalizer.lowercase", lowercase)
    writer.add("tokenizer.ggml.normalizer.strip_accents", lowercase if strips is None else bool(strips))


def _pooling(folder: Path) -> int:
    """GGUF's number of the pooling that sentence-transformers has set up; mean where nothing says."""
    path = folder / "1_Pooling" / "config.json"
    modes = _read_json(path) if path.exists() else {"pooling_mode_mean_tokens": True}
    chosen = [key for key, value in modes.items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise HparamError("pooling_mode", f"{' and '.join(chosen) or 'none'}: only {', '.join(_POOLINGS)}", path)
    return _POOLINGS[chosen[0]]


def _read_json(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise HparamError(path.name, f"no JSON: {error}", path) from error
    if not isinstance(values, dict):
        raise HparamError(path.name, "is no object", path)
    return values


def _get(values: dict[str, object], key: str, default: _Value, folder: Path) -> _Value:
    """A value of the default's type. Raises: HparamError."""
    value = values.get(key, default)
    if isinstance(default, float) and isinstance(value, int):
        return type(default)(value)
    if type(value) is not type(default):
        raise HparamError(key, f"{value!r} is no {type(default).__name__}", folder)
    return value
