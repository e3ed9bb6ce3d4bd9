"""How fast the matrix products run, against what this machine can do.

    python -m tests.bench.kernels [--threads 1 2] [--isa avx512] [--types Q4_1 Q8_0] [--tokens 1 512] [--quick]

Prints per weight type and shape: for one token GB/s of packed weights and its share of a plain read of the same bytes; for many
tokens GMAC/s and its share of what the registers alone reach in int8. Shapes are those of the three real models.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cext.kernel_matmul import PackedWeights, available_isas, peak_int8
from engine.types import QuantType
from tests.cext.quant_blocks import random_rows

T = QuantType
SHAPES: dict[QuantType, tuple[tuple[int, int], ...]] = {
    T.Q4_1: ((1536, 576), (576, 1536)),
    T.Q8_0: ((2048, 640), (49152, 576), (896, 4864)),
    T.Q5_0: ((2048, 640), (4864, 896), (896, 896)),
    T.Q4_K: ((640, 2048), (896, 4864)),
    T.Q6_K: ((640, 2048), (896, 4864)),
    T.Q4_0: ((4864, 896),),
    T.Q5_1: ((4864, 896),),
    T.Q5_K: ((896, 4864),),
    T.Q2_K: ((896, 4864),),
    T.Q3_K: ((896, 4864),),
    T.IQ4_NL: ((4864, 896),),
    T.IQ4_XS: ((896, 4864),),
    T.MXFP4: ((4864, 896),),
    T.F32: ((1024, 1024),),
    T.F16: ((1024, 1024),),
    T.BF16: ((1024, 1024),),
}
COLD_BYTES = 192 << 20
"""Bytes of copies that one token passes through: about a model, and far more than a core's own caches hold."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured product.

    Attributes:
        read_share: of a plain read's speed; one token only.
        peak_share: of the int8 peak.
    """

    type: str
    n_rows: int
    n_cols: int
    n_tokens: int
    n_threads: int
    gmac_s: float
    peak_share: float
    gb_s: float
    read_share: float


def measure(type: QuantType, shape: tuple[int, int], n_tokens: int, n_threads: int, isa: str, repeats: int) -> Row:
    """Time one product: each figure from the best of `repeats`, limits and products alternating."""
    n_rows, n_cols = shape
    rows = random_rows(np.random.default_rng(1), type, n_rows, n_cols)
    one = PackedWeights(type, n_rows, n_cols, rows)
    n_copies = max(1, COLD_BYTES // one.nbytes) if n_tokens == 1 else max(1, 4_000_000 // (n_rows * n_cols))
    packed = PackedWeights(type, n_rows, n_cols, rows, n_copies)
    seconds, read, peak = 1e30, 1e30, 0.0
    for _ in range(repeats):
        seconds = min(seconds, packed.time_mul(n_tokens, n_threads, 2, isa))
        if n_tokens == 1:
            read = min(read, packed.time_read(n_threads, 2))
        else:
            peak = max(peak, peak_int8(n_threads, 1))
    n_bytes = packed.nbytes * n_copies
    gmac = n_rows * n_cols * n_tokens * n_copies / seconds / 1e9
    return Row(
        type.name, n_rows, n_cols, n_tokens, n_threads, gmac, gmac / (peak / 1e9) if peak else 0.0,
        n_bytes / seconds / 1e9, read / seconds if n_tokens == 1 else 0.0,
    )  # fmt: skip


def lines(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the table's lines as they are measured."""
    yield f"{'type':8}{'rows x cols':>14}{'tokens':>8}{'threads':>8}{'GMAC/s':>10}{'of peak':>9}{'GB/s':>8}{'of read':>9}"
    for type in [QuantType[name] for name in arguments.types] or SHAPES:
        for shape in SHAPES[type]:
            for n_tokens in arguments.tokens:
                for n_threads in arguments.threads:
                    row = measure(type, shape, n_tokens, n_threads, arguments.isa, arguments.repeats)
                    yield (
                        f"{row.type:8}{f'{row.n_rows} x {row.n_cols}':>14}{n_tokens:8}{n_threads:8}{row.gmac_s:10.1f}"
                        f"{row.peak_share:9.0%}{row.gb_s:8.1f}{row.read_share:9.0%}"
                    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 512])
    parser.add_argument("--types", nargs="+", default=[])
    parser.add_argument("--isa", default=available_isas()[-1], choices=available_isas())
    parser.add_argument("--repeats", type=int, default=5)
    for line in lines(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
