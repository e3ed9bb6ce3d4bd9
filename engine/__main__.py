"""`causerie-cli` and `python -m engine`: the engine in a terminal, without a window.

Each subcommand is a file of `engine.cli`. An error is one line on stderr and exit status 1; wrong usage is status 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from engine.cli import bench, chat, convert, embed, generate, graph, info, perplexity, serve, tokenize
from engine.errors import EngineError

COMMANDS = (generate, chat, bench, info, tokenize, perplexity, embed, graph, convert, serve)
INTERRUPTED = 130
"""Exit status of a program that Ctrl+C ended. Source: the shells' 128 + SIGINT."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End the program with status 2."""
        self.exit(2, f"{self.prog}: {message} (--help says more)\n")


def make_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = Parser(prog="causerie-cli", description="Run a language model from a GGUF file.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands).set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status."""
    args = make_parser().parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except (EngineError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has gone; nothing more can be told, not even while Python closes the pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        print(f"causerie-cli: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except MemoryError:
        print("causerie-cli: not enough memory", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
