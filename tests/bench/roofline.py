"""How near this engine comes to what the machine can do: plain reads for generation, int8 products for prompts.

    python -m tests.bench.roofline [MODEL ...] [-t THREADS] [-r REPEATS] [--json FILE]

Both ceilings are measured in the same run, taking turns with what they are ceilings of. Generation: tokens a second against a
vector sum over the packed weights themselves, by the same threads and in the same pages (the best of 5 each round). Long
contexts: a token behind 4,096 others, whose cache is f16 or q8_0, against what its bytes (weights and cache) predict from a
token of the empty context. Prompts: the model's larger matrices times 512 tokens against the peak of the int8 instructions,
from registers. Python: a token's wall time less the time inside compiled stages. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cext.kernel_matmul import PackedWeights, available_isas, peak_int8, read_seconds
from cext.weights import PackedWeight
from engine import Batch, Context, ContextParams, Model, ThreadPool, create_context, load_model
from engine.types import QuantType
from tests.bench.compare_peer import models_or_exit
from tests.cext.quant_blocks import random_rows

N_GEN = 32
N_LONG = 4096
KV_TYPES = ("f16", "q8_0")
LARGE = 300_000
"""Weights of a matrix that counts as large."""


@dataclass(frozen=True, slots=True)
class Roof:
    """One model's figures.

    Attributes:
        read_gb_s: of the plain read; tok_s: of generation behind 32 tokens; of_read: share of the ceiling.
        python_us: of a token, outside compiled stages.
        long: by cache type, a token's time behind 4,096 others over what its bytes predict.
        gemm: by weight type, share of the int8 peak.
    """

    model: str
    n_threads: int
    weights_mb: float
    read_gb_s: float
    tok_s: float
    of_read: float
    python_us: float
    long: dict[str, float]
    gemm: dict[str, float]


def matrices(model: Model) -> list[PackedWeight]:
    """The packed matrices, which lie in one buffer and of which a dense model's token reads all."""
    weights = [model.weight(name) for name in model.weight_infos]
    return [weight for weight in weights if isinstance(weight, PackedWeight)]


def token_seconds(ctx: Context, n_past: int) -> tuple[float, float]:
    """Seconds of a token behind n_past others: (wall, of it outside compiled stages); the best of N_GEN."""
    best = best_outside = 1e30
    for i in range(N_GEN):
        inside = sum(map(sum, ctx.stage_ns().values()))
        start = time.perf_counter()
        ctx.decode(Batch.from_tokens([100 + i], n_past + i))
        wall = time.perf_counter() - start
        outside = wall - (sum(map(sum, ctx.stage_ns().values())) - inside) / 1e9
        best, best_outside = min(best, wall), min(best_outside, outside)
    return best, best_outside


def filled(model: Model, n_past: int, n_threads: int, kv_type: str) -> Context:
    """A context that holds n_past tokens."""
    params = ContextParams(
        n_ctx=n_past + 4 * N_GEN, n_batch=512, n_ubatch=512, n_threads=n_threads, type_k=kv_type, type_v=kv_type
    )
    ctx = create_context(model, params)
    for begin in range(0, n_past, 512):
        n = min(512, n_past - begin)
        ctx.decode(Batch.from_tokens([(7 * i) % 1000 + 5 for i in range(begin, begin + n)], begin))
    return ctx


def gemm_share(type: QuantType, n_rows: int, n_cols: int, n_threads: int) -> float:
    """Share of the int8 peak that a matrix times 512 tokens reaches; 0 where the CPU has no such instructions."""
    rows = random_rows(np.random.default_rng(1), type, n_rows, n_cols)
    packed = PackedWeights(type, n_rows, n_cols, rows, max(1, 4_000_000 // (n_rows * n_cols)))
    peak = peak_int8(n_threads, 2)
    seconds = packed.time_mul(512, n_threads, 2, available_isas()[-1])
    return n_rows * n_cols * 512 * packed.n_copies / seconds / peak if peak else 0.0


def measure(path: Path, n_threads: int, n_repeats: int) -> Roof:
    """Measure one model."""
    model = load_model(path, n_threads=n_threads)
    packed = matrices(model)
    data, n_bytes = packed[0].buffer.view(), packed[0].buffer.nbytes
    pool = ThreadPool(n_threads)
    large = Counter((weight.type, weight.n_rows, weight.n_cols) for weight in packed)
    shapes = [shape for shape in large if LARGE <= shape[1] * shape[2] < 50_000_000]
    short = filled(model, 32, n_threads, "f16")
    long = {kv_type: filled(model, N_LONG, n_threads, kv_type) for kv_type in KV_TYPES}
    kv_bytes = {kv_type: ctx.get_kv_self().stats().used_bytes for kv_type, ctx in long.items()}
    reads, walls, outsides = [], [], []
    ratios: dict[str, list[float]] = {kv_type: [] for kv_type in KV_TYPES}
    gemm: dict[str, list[float]] = {}
    for _ in range(n_repeats):
        reads.append(read_seconds(data, pool, 5))
        short.get_kv_self().seq_rm(0, 32, -1)
        wall, outside = token_seconds(short, 32)
        walls.append(wall)
        outsides.append(outside)
        for kv_type, ctx in long.items():
            ctx.get_kv_self().seq_rm(0, N_LONG, -1)
            predicted = wall * (n_bytes + kv_bytes[kv_type]) / n_bytes
            ratios[kv_type].append(token_seconds(ctx, N_LONG)[0] / predicted)
        for type, n_rows, n_cols in shapes:
            gemm.setdefault(QuantType(type).name, []).append(gemm_share(QuantType(type), n_rows, n_cols, n_threads))
    read, wall = statistics.median(reads), statistics.median(walls)
    return Roof(
        path.name,
        n_threads,
        n_bytes / 1e6,
        n_bytes / read / 1e9,
        1 / wall,
        read / wall,
        1e6 * statistics.median(outsides),
        {kv_type: statistics.median(values) for kv_type, values in ratios.items()},
        {name: statistics.median(values) for name, values in sorted(gemm.items())},
    )


def table(roofs: list[Roof]) -> str:
    """The figures in Markdown."""
    lines = [
        "| model | read GB/s | tok/s | of the read | Python us | 4,096 f16 | 4,096 q8_0 | products of the int8 peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for roof in roofs:
        gemm = ", ".join(f"{name} {share:.0%}" for name, share in roof.gemm.items())
        lines.append(
            f"| {roof.model} | {roof.read_gb_s:.1f} | {roof.tok_s:.1f} | {roof.of_read:.0%} | {roof.python_us:.0f} "
            f"| {roof.long['f16']:.2f} | {roof.long['q8_0']:.2f} | {gemm} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    roofs = [measure(path, arguments.threads, arguments.repeats) for path in models_or_exit(parser, arguments.models)]
    print(table(roofs))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(roof) for roof in roofs], indent=1))


if __name__ == "__main__":
    main()
