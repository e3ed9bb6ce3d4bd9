"""`bench MODEL`: prompt and generated tokens a second."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

from cext.executor import isa
from engine.batch import Batch
from engine.cli.options import Subparsers, add_model, at_least, open_model, print_json
from engine.context.core import Context
from engine.context.kinds import create_context
from engine.context.params import ContextParams


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("bench", help="tokens a second")
    add_model(parser)
    parser.add_argument("-p", "--n-prompt", type=at_least(int, 1), default=512, help="tokens of the prompt")
    parser.add_argument("-n", "--n-gen", type=at_least(int, 1), default=64, help="tokens generated behind it")
    parser.add_argument("-r", "--repeats", type=at_least(int, 1), default=5, help="after one that does not count")
    parser.add_argument("--type-k", default="f16", help="type of the cached keys")
    parser.add_argument("--type-v", default="f16", help="type of the cached values")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def bench_once(ctx: Context, n_prompt: int, n_gen: int, rng: random.Random) -> tuple[float, float]:
    """Prompt and generated tokens a second of one run with random tokens and an empty cache.

    Each generated token has all its logits; which one comes next does not depend on them. An encoder-decoder encodes
    the prompt.
    """
    n_vocab = ctx.get_model().hparams.n_vocab
    prompt = [rng.randrange(n_vocab) for _ in range(n_prompt)]
    following = [rng.randrange(n_vocab) for _ in range(n_gen)]
    ctx.get_kv_self().seq_rm(0, -1, -1)
    began = time.perf_counter()
    if ctx.get_model().arch.has_encoder:
        ctx.encode(Batch.from_tokens(prompt))
    else:
        for at in range(0, n_prompt, ctx.n_batch()):
            ctx.decode(Batch.from_tokens(prompt[at : at + ctx.n_batch()], at))
    ready = time.perf_counter()
    for token in following:
        ctx.decode(Batch.from_tokens([token], None))
        ctx.get_logits_ith(-1)
    ended = time.perf_counter()
    return n_prompt / (ready - began), n_gen / (ended - ready)


def resident_mb() -> float:
    """Megabytes of memory that this process has in use; where only the peak is known, that; 0 where nothing is."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096 / 2**20
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def run(args: argparse.Namespace) -> int:
    """Print what every repeat reached."""
    began = time.perf_counter()
    with open_model(args) as model:
        load_s = time.perf_counter() - began
        params = ContextParams(n_ctx=args.n_prompt + args.n_gen, type_k=args.type_k, type_v=args.type_v)
        ctx = create_context(model, params)
        rng = random.Random(0)
        runs = [bench_once(ctx, args.n_prompt, args.n_gen, rng) for _ in range(args.repeats + 1)][1:]
        pp, tg = [run[0] for run in runs], [run[1] for run in runs]
        values = {
            "model": args.model.name,
            "isa": isa(),
            "n_threads": ctx.n_threads(),
            "load_s": load_s,
            "pp": pp,
            "tg": tg,
            "rss_mb": resident_mb(),
        }
        ctx.close()
    if args.json:
        print_json(values)
        return 0
    print(f"{args.model.name}: {values['isa']}, {values['n_threads']} threads, loaded in {load_s:.2f} s")
    for name, what, got in (("pp", args.n_prompt, pp), ("tg", args.n_gen, tg)):
        print(f"{name} {what:>5}: {statistics.median(got):8.1f} tok/s   ({min(got):.1f} to {max(got):.1f})")
    print(f"memory: {values['rss_mb']:.0f} MB")
    return 0
