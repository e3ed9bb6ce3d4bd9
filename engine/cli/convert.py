"""`convert FOLDER FILE`: a BERT encoder from its safetensors folder to a GGUF file."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.cli.options import Subparsers
from engine.convert.bert import convert_bert


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("convert", help="make a GGUF file of a BERT encoder's safetensors folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="with model.safetensors, config.json and vocab.txt")
    parser.add_argument("file", metavar="FILE", type=Path, help="the GGUF file to write")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    convert_bert(args.folder, args.file)
    return 0
