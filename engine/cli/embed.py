"""`embed MODEL TEXT`: the vector of a text, from an encoder or from a decoder's hidden rows."""

from __future__ import annotations

import argparse

import numpy as np

from engine.batch import Batch
from engine.cli.options import Subparsers, add_model, open_model, print_json
from engine.context.kinds import create_context
from engine.context.params import ContextParams
from engine.errors import ParamError
from engine.model import Model
from engine.types import F32Array

POOLINGS = {1: "mean", 2: "cls", 3: "last"}
"""`{arch}.pooling_type` by its GGUF numbers."""


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("embed", help="the vector of a text")
    add_model(parser)
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--pooling", choices=sorted(POOLINGS.values()), help="default: what the file says, else mean")
    parser.add_argument("--raw", action="store_true", help="leave the vector's length as it is")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the vector, one number a line."""
    with open_model(args) as model:
        tokens = model.tokenizer.encode(args.text)
        pooling = args.pooling or POOLINGS.get(model.gguf.get_int(f"{model.arch.name}.pooling_type", 1), "mean")
        vector = embed(model, tokens, pooling)
    if not args.raw:
        vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    if args.json:
        print_json({"embedding": [float(v) for v in vector], "n_tokens": len(tokens), "pooling": pooling})
    else:
        print("\n".join(f"{v:.7g}" for v in vector))
    return 0


def embed(model: Model, tokens: list[int], pooling: str) -> F32Array:
    """The pooled hidden rows of tokens: f32[n_embd], not normalised.

    Raises: ParamError: no tokens, or more than the model was trained on.
    """
    n = len(tokens)
    if not 1 <= n <= model.n_ctx_train:
        raise ParamError(f"the text has {n} tokens; the model takes 1 to {model.n_ctx_train}")
    params = ContextParams(n_ctx=n, n_batch=n, n_ubatch=min(n, 1 << 16), embeddings=True, pooling=pooling)
    ctx = create_context(model, params)
    batch = Batch.from_tokens(tokens, logits="all" if pooling != "last" else "last")
    if model.arch.is_encoder:
        ctx.encode(batch)
    else:
        ctx.decode(batch)
    vector = ctx.get_embeddings_seq(0).copy()
    ctx.close()
    return vector
