"""Attention by itself: decode in GB/s of cache read, next to a plain read of as many bytes; prefill in GFLOP/s.

Run as `python -m tests.bench.attention [--isa avx512] [--threads 2] [--json]`. Prefill counts the products that causal
attention needs (4 * d * seen cells per query head), not those a tile does beyond them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from cext import kernel_rows as rows
from cext.kernel_attn import Attention

ISAS = {"scalar": 0, "avx2": 1, "avx512": 2}
TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}
MODELS = {"SmolLM2-135M": (9, 3, 64), "Gemma-3-270M": (4, 1, 256), "Qwen2.5-0.5B": (14, 2, 64)}
PAGE_CELLS = 64
N_LAYERS = 12  # each call reads another layer's pages, as a token's pass does


@dataclass(frozen=True)
class Result:
    """One measurement. `rate` is GB/s for decode (n_tokens 1), GFLOP/s for prefill."""

    model: str
    type: str
    n_tokens: int
    n_ctx: int
    us: float
    rate: float


class Layer:
    """Random pages of one layer and the table of their runs."""

    def __init__(self, isa: int, shape: tuple[int, int, int], type_: int, n_ctx: int, seed: int) -> None:
        self.n_head, self.n_kv, self.d = shape
        k_bytes = rows.kv_row_bytes(type_, self.d) * self.n_kv * PAGE_CELLS
        n_pages = (n_ctx + PAGE_CELLS - 1) // PAGE_CELLS
        self.n_bytes = 2 * k_bytes * n_ctx // PAGE_CELLS
        self.memory = np.zeros(n_pages * 2 * k_bytes + 64, np.uint8)
        start = self.memory.ctypes.data + (-self.memory.ctypes.data % 64)
        self.pages = np.arange(n_pages, dtype=np.uint64) * np.uint64(2 * k_bytes) + np.uint64(start)
        same = {"d_k": self.d, "d_v": self.d, "type_k": type_, "type_v": type_, "k_off": 0, "v_off": k_bytes}
        self.attention = Attention(isa, {**same, "n_head": self.n_head, "n_head_kv": self.n_kv, "scale": self.d**-0.5})
        rng = np.random.default_rng(seed)
        cells = np.arange(PAGE_CELLS, dtype=np.int32)
        for page in self.pages:
            k, v = rng.standard_normal((2, PAGE_CELLS, self.n_kv * self.d)).astype(np.float32)
            self.attention.store(k, v, np.full(PAGE_CELLS, page, np.uint64), cells)
        fields = [("page", "<u8"), *((name, "<i4") for name in ("first", "count", "pos0", "step", "delta", "none"))]
        runs = [(page, 0, PAGE_CELLS, i * PAGE_CELLS, 1, 0, 0) for i, page in enumerate(self.pages)]
        self.runs = np.array(runs, np.dtype(fields)).view(np.uint8).reshape(-1, 32)

    def measure(self, n_tokens: int, n_ctx: int, n_threads: int, n_repeats: int) -> float:
        q = np.random.default_rng(0).standard_normal((n_tokens, self.n_head * self.d)).astype(np.float32)
        pos = np.arange(n_ctx - n_tokens, n_ctx, dtype=np.int32)
        segments = np.array([[0, n_tokens, 0, len(self.runs)]], np.int64)
        return min(self.attention.measure(q, pos, segments, self.runs, n_threads, n_ctx, n_repeats))


def read_rate(n_bytes: int, n_threads: int) -> float:
    """GB/s of a plain sum over n_bytes of cold memory, on n_threads."""
    data = np.ones(max(n_bytes, 1 << 28) // 8, np.uint64)
    parts = np.array_split(data, n_threads)
    best = 1e9
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(5):
            started = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, parts))
            best = min(best, time.perf_counter() - started)
    return data.nbytes / best / 1e9


def run(isa: int, n_threads: int, types: list[str], models: list[str], n_repeats: int) -> list[Result]:
    results = []
    for name in models:
        shape = MODELS[name]
        for type_ in types:
            layers = [Layer(isa, shape, TYPES[type_], 4096, i) for i in range(N_LAYERS)]
            # SAFETY of the figure: the layers together exceed the second-level cache, so each read is a real one.
            times = [[layer.measure(1, 4096, n_threads, 1) for layer in layers] for _ in range(n_repeats)]
            best = float(np.median(np.min(times, 0)))
            results.append(Result(name, type_, 1, 4096, best * 1e6, layers[0].n_bytes / best / 1e9))
            for n in (512, 2048):
                best = layers[0].measure(n, n, n_threads, n_repeats)
                flop = 4 * shape[2] * shape[0] * n * (n + 1) / 2
                results.append(Result(name, type_, n, n, best * 1e6, flop / best / 1e9))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", choices=ISAS, default=list(ISAS)[rows.isa_best()])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["f32", "f16", "bf16", "q8_0"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    plain = read_rate(1 << 28, args.threads)
    results = run(ISAS[args.isa], args.threads, args.types, args.models, args.repeats)
    if args.json:
        print(
            json.dumps(
                {
                    "isa": args.isa,
                    "n_threads": args.threads,
                    "read_gb_s": plain,
                    "results": [asdict(r) for r in results],
                }
            )
        )
        return 0
    print(f"{args.isa}, {args.threads} threads; plain read {plain:.1f} GB/s")
    for r in results:
        unit = "GB/s" if r.n_tokens == 1 else "GFLOP/s"
        print(f"{r.model:14} {r.type:5} {r.n_tokens:5} tokens at {r.n_ctx:5}: {r.us:9.1f} us {r.rate:8.1f} {unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
