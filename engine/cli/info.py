"""`info MODEL`: what is in a model file, without loading its weights."""

from __future__ import annotations

import argparse
from collections import Counter

from engine.arch.registry import create_arch
from engine.cli.options import Subparsers, add_model, open_model, print_json


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("info", help="what is in a model file")
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print a fact a line."""
    with open_model(args, vocab_only=True) as model:
        arch = create_arch(model.gguf)
        hparams, tokenizer = arch.hparams, model.tokenizer
        n_bytes = Counter[str]()
        for tensor in model.gguf.tensors.values():
            n_bytes[tensor.type.name] += tensor.nbytes
        values: dict[str, object] = {
            "path": str(model.path),
            "name": model.name,
            "arch": model.gguf.architecture,
            "size_label": arch.type_name(),
            "n_params": model.n_params,
            "size_bytes": model.size_bytes,
            "types": {name: n for name, n in n_bytes.most_common()},
            "n_ctx_train": hparams.n_ctx_train,
            "n_vocab": tokenizer.n_vocab,
            "n_embd": hparams.n_embd,
            "n_layer": hparams.n_layer,
            "n_head": max(hparams.n_head),
            "n_head_kv": max(hparams.n_head_kv),
            "n_ff": max(hparams.n_ff),
            "tokenizer": tokenizer.model,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "eog_token_ids": sorted(tokenizer.eog_token_ids),
            "chat_template": model.chat_template.kind,
        }
    if args.json:
        print_json(values)
        return 0
    for key, value in values.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {n / 2**20:,.1f} MB" for name, n in value.items())
        print(f"{key:14} {value:,}" if isinstance(value, int) and key[:2] in ("n_", "si") else f"{key:14} {value}")
    return 0
