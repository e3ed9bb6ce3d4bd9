"""What a long chat may cost: a token's place, a fork, a shift, a saved state. The best of several, in processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine.io import BlockWriter
from engine.memory import KVCache, LayerKV
from tests.engine.memory.helpers import make_cache, ubatch

N = 16384


def long_chat(layers: tuple[LayerKV, ...] = (LayerKV(0, 1, 8, 8),), **params: Any) -> KVCache:
    """A chat of 16,384 tokens."""
    cache = make_cache("kv", layers, n_ctx=2 * N, **params)
    for begin in range(0, N, 512):
        tx = cache.begin()
        tx.place(ubatch(range(begin, begin + 512)))
        tx.commit()
    return cache


def best_ms(call: Callable[[], object], repeats: int = 20) -> float:
    """Shortest processor time of a call, in milliseconds."""
    times = []
    for _ in range(repeats):
        began = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - began)
    return min(times) / 1e6


def test_one_token_is_placed_in_microseconds() -> None:
    cache = long_chat()
    tokens = [ubatch([N + i]) for i in range(2000)]

    def hundred() -> None:
        for _ in range(100):
            cache.prepare(1)
            tx = cache.begin()
            tx.place(tokens.pop(0))
            tx.commit()

    assert best_ms(hundred) * 10 < 2 * 20  # microseconds for each


def test_fork_of_a_long_chat() -> None:
    cache = long_chat()
    twins: list[KVCache] = []
    assert best_ms(lambda: twins.append(cache.clone())) < 1
    assert best_ms(lambda: cache.seq_cp(0, 1, 0, -1)) < 2
    assert cache.stores[0].pages.pool.n_used == N // 64


def test_shift_of_a_long_chat() -> None:
    cache = long_chat()
    assert cache.seq_rm(0, 64, 8000)
    assert best_ms(lambda: cache.seq_add(0, 8000, -1, 1)) < 5


def test_state_is_written_at_the_speed_of_memory() -> None:
    cache = long_chat((LayerKV(0, 2, 128, 128), LayerKV(1, 2, 128, 128)))
    n_bytes = N * cache.stores[0].layout.cell_bytes
    assert n_bytes == 64 << 20

    class Nowhere:
        def write(self, data: memoryview) -> None:
            pass

    assert best_ms(lambda: cache.save(BlockWriter(Nowhere()), 0), 3) < 2 * n_bytes / 500e3
