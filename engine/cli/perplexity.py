"""`perplexity MODEL FILE`: how well a model foresees a text."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from engine.batch import Batch
from engine.cli.options import Subparsers, add_context, add_model, at_least, open_context, print_json
from engine.context.core import Context
from engine.errors import ParamError, UnsupportedCallError
from engine.types import F64Array

N_CHUNK = 64
"""Tokens whose logits are held at a time: 64 MB for a vocabulary of 262,144."""


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("perplexity", help="how well a model foresees a text")
    add_model(parser)
    parser.add_argument("file", metavar="FILE", type=Path, help="text in UTF-8")
    parser.add_argument("--window", type=at_least(int, 2), default=512, help="tokens that are looked at together")
    add_context(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def window_log_probs(ctx: Context, tokens: list[int]) -> F64Array:
    """Natural log of the probability of each token but the first, given those before it: f64[n_tokens - 1]."""
    ctx.get_kv_self().seq_rm(0, -1, -1)
    found: list[F64Array] = []
    for at in range(0, len(tokens) - 1, N_CHUNK):
        chunk, following = tokens[at : min(at + N_CHUNK, len(tokens) - 1)], tokens[at + 1 : at + 1 + N_CHUNK]
        ctx.decode(Batch.from_tokens(chunk, at, 0, "all"))
        logits = ctx.get_logits().astype(np.float64)
        top = logits.max(axis=1)
        log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        found.append(logits[np.arange(len(chunk)), following] - log_sum)
    return np.concatenate(found)


def run(args: argparse.Namespace) -> int:
    """Print the perplexity over windows that follow each other, each begun anew."""
    try:
        text = args.file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParamError(f"{args.file}: not text in UTF-8: {error.reason} at byte {error.start}") from None
    with open_context(args) as opened:
        if opened.model.arch.has_encoder:
            raise UnsupportedCallError("perplexity", "an encoder-decoder, which foresees an answer and not a text")
        tokenizer = opened.model.tokenizer
        start = [tokenizer.bos_token_id] if tokenizer.add_bos and tokenizer.bos_token_id is not None else []
        ids = tokenizer.encode(text, add_special=False)
        n = min(args.window, opened.ctx.n_ctx()) - len(start)
        windows = [start + ids[at : at + n] for at in range(0, len(ids), n)]
        log_probs = [window_log_probs(opened.ctx, window) for window in windows if len(window) > 1]
        if not log_probs:
            raise ParamError(f"{args.file}: fewer than two tokens")
        every = np.concatenate(log_probs)
    perplexity = math.exp(-every.mean())
    deviation = perplexity * every.std() / math.sqrt(len(every))
    if args.json:
        print_json(
            {"model": args.model.name, "perplexity": perplexity, "error": deviation, "n_tokens": len(every)}
            | {"n_windows": len(log_probs)}
        )
    else:
        print(f"perplexity {perplexity:.4f} +- {deviation:.4f} over {len(every):,} tokens")
    return 0
