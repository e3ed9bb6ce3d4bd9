"""`generate MODEL -p TEXT`: go on with a text."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from engine.cli.options import (
    Subparsers,
    add_context,
    add_model,
    add_sampling,
    at_least,
    generate_params,
    open_context,
    print_json,
)  # fmt: skip
from engine.errors import ParamError
from engine.generate import Finished, TextDelta, generate
from engine.session import Session


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("generate", help="go on with a text")
    add_model(parser)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="the text; control tokens in it are read as such")
    prompt.add_argument("-f", "--file", type=Path, help="a file with the text; - for stdin")
    parser.add_argument(
        "-n", "--n-predict", type=at_least(int, -1), default=128, help="most tokens; -1: until it ends by itself"
    )
    add_context(parser)
    add_sampling(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object when all is done")
    return parser


def read_prompt(args: argparse.Namespace) -> str:
    """The prompt, wherever it is. Raises: ParamError: a file that is no text."""
    if args.prompt is not None:
        return str(args.prompt)
    try:
        return sys.stdin.read() if str(args.file) == "-" else str(args.file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ParamError(f"{args.file}: not text in UTF-8: {error.reason} at byte {error.start}") from None


def run(args: argparse.Namespace) -> int:
    """Print the text as it is made, or everything at the end."""
    params, prompt = generate_params(args), read_prompt(args)
    with open_context(args) as opened:
        ids = opened.model.tokenizer.encode(prompt, parse_special=True)
        text = ""
        for event in generate(Session(opened.ctx), ids, params):
            if isinstance(event, TextDelta):
                text += event.text
                if not args.json:
                    print(event.text, end="", flush=True)
            elif isinstance(event, Finished):
                finished = event
        if args.json:
            print_json(
                {
                    "model": args.model.name,
                    "prompt_tokens": ids,
                    "text": text,
                    "tokens": list(finished.tokens),
                    "finish_reason": finished.reason,
                    "stats": asdict(finished.stats),
                }
            )
        else:
            print()
    return 0
