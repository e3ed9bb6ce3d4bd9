"""`tokenize MODEL TEXT`: the ids of a text."""

from __future__ import annotations

import argparse

from engine.cli.options import Subparsers, add_model, open_model, print_json


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("tokenize", help="the ids of a text")
    add_model(parser)
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--no-special", action="store_true", help="add no start and end tokens")
    parser.add_argument("--parse-special", action="store_true", help="read control tokens in the text as such")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print an id and its piece a line."""
    with open_model(args, vocab_only=True) as model:
        tokenizer = model.tokenizer
        ids = tokenizer.encode(args.text, add_special=not args.no_special, parse_special=args.parse_special)
        pieces = [tokenizer.token_to_piece(token).decode(errors="replace") for token in ids]
    if args.json:
        print_json({"tokens": ids, "pieces": pieces})
        return 0
    for token, piece in zip(ids, pieces, strict=True):
        print(f"{token:>7}  {piece!r}")
    return 0
