"""`embed MODEL TEXT`: the vector of a text, from an encoder or from a decoder's hidden rows."""

from __future__ import annotations

import argparse

from engine.cli.options import Subparsers, add_model, open_model, print_json
from engine.embedding import POOLINGS, Embedder


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
        embedder = Embedder(model, args.pooling)
        vector = embedder.embed(tokens, normalise=not args.raw)
        embedder.close()
    if args.json:
        print_json({"embedding": [float(v) for v in vector], "n_tokens": len(tokens), "pooling": embedder.pooling})
    else:
        print("\n".join(f"{v:.7g}" for v in vector))
    return 0
