"""`graph MODEL`: the compute graph, from the header alone."""

from __future__ import annotations

import argparse

from engine.cli.options import Subparsers, add_model
from engine.context.header_graph import graph_text_of_file


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("graph", help="the compute graph, from the file's header alone")
    add_model(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print a node a line."""
    print(graph_text_of_file(args.model), end="")
    return 0
