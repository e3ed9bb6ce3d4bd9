"""Options that several subcommands share, and what is made of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from engine.context.core import Context
from engine.context.kinds import create_context
from engine.context.params import CACHE_TYPES, ContextParams
from engine.errors import ParamError
from engine.generate import GenerateParams
from engine.model import Model, load_model
from engine.sampling import SamplerParams

N_CTX_DEFAULT = 4096

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Number = TypeVar("Number", int, float)


def at_least(kind: Callable[[str], Number], least: Number) -> Callable[[str], Number]:
    """A converter for argparse that refuses numbers below `least`."""

    def convert(text: str) -> Number:
        value = kind(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        return value

    return convert


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL and the number of threads."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="a GGUF file, or the first part of a split one")
    parser.add_argument("-t", "--threads", type=at_least(int, 1), help="threads (default: all processors)")


def add_context(parser: argparse.ArgumentParser) -> None:
    """Size and types of the context."""
    parser.add_argument(
        "-c", "--ctx-size", type=at_least(int, 0), default=None,
        help=f"tokens that the context holds; 0: as many as the model was trained on (default: up to {N_CTX_DEFAULT})",
    )  # fmt: skip
    parser.add_argument("--type-k", choices=CACHE_TYPES, default="f16", help="type of the cached keys")
    parser.add_argument("--type-v", choices=CACHE_TYPES, default="f16", help="type of the cached values")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How tokens are chosen."""
    default = SamplerParams()
    group = parser.add_argument_group("sampling")
    group.add_argument("--temp", type=float, default=default.temperature, help="0: always the most likely token")
    group.add_argument("--top-k", type=int, default=default.top_k, help="0: all")
    group.add_argument("--top-p", type=float, default=default.top_p, help="1: all")
    group.add_argument("--min-p", type=float, default=default.min_p, help="0: all")
    group.add_argument("--typical-p", type=float, default=default.typical_p, help="1: all")
    group.add_argument("--repeat-penalty", type=float, default=default.repeat_penalty, help="1: none")
    group.add_argument("--repeat-last-n", type=int, default=default.repeat_last_n, help="-1: the whole context")
    group.add_argument("--frequency-penalty", type=float, default=default.frequency_penalty)
    group.add_argument("--presence-penalty", type=float, default=default.presence_penalty)
    group.add_argument("-s", "--seed", type=int, help="the same seed gives the same text")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="text that ends a reply; repeatable")


def generate_params(args: argparse.Namespace) -> GenerateParams:
    """What `add_sampling` and -n asked for. Raises: SamplingParamError."""
    sampler = SamplerParams(
        temperature=args.temp,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        typical_p=args.typical_p,
        repeat_penalty=args.repeat_penalty,
        repeat_last_n=args.repeat_last_n,
        frequency_penalty=args.frequency_penalty,
        presence_penalty=args.presence_penalty,
        seed=args.seed,
    )
    return GenerateParams(sampler, n_predict=args.n_predict, stop=tuple(args.stop))


def open_model(args: argparse.Namespace, vocab_only: bool = False) -> Model:
    """The model that `add_model` asked for."""
    path: Path = args.model
    if not path.is_file():
        raise ParamError(f"{path}: no such file")
    return load_model(path, n_threads=args.threads, vocab_only=vocab_only)


@dataclass(frozen=True, slots=True)
class Opened:
    """A model with a context for one sequence."""

    model: Model
    ctx: Context

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.ctx.close()
        self.model.close()


def open_context(args: argparse.Namespace) -> Opened:
    """The model and the context that `add_model` and `add_context` asked for."""
    model = open_model(args)
    n_ctx = min(N_CTX_DEFAULT, model.n_ctx_train) if args.ctx_size is None else args.ctx_size
    try:
        ctx = create_context(model, ContextParams(n_ctx=n_ctx, type_k=args.type_k, type_v=args.type_v))
    except BaseException:
        model.close()
        raise
    return Opened(model, ctx)


def print_json(values: dict[str, object]) -> None:
    """One JSON object on stdout, and nothing else there."""
    json.dump(values, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
