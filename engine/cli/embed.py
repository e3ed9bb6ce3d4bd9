"""`embed MODEL TEXT`: the vector of a text, for models that make one."""

from __future__ import annotations

import argparse

from engine.cli.options import Subparsers, add_model, open_model
from engine.errors import UnsupportedCallError


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("embed", help="the vector of a text")
    add_model(parser)
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Say that no encoder is known. Raises: UnsupportedCallError."""
    with open_model(args, vocab_only=True) as model:
        raise UnsupportedCallError("embed", f"architecture '{model.gguf.architecture}': it is no encoder known here")
