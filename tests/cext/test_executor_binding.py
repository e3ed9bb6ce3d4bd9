"""A program runs only where everything that it reads is bound: what an earlier run had bound is let go."""

from __future__ import annotations

import numpy as np
import pytest

from cext.executor import Binding, Program, work_bytes
from cext.threadpool import ThreadPool
from cext.weights import LargeBuffer
from engine.memory.cells import RUN_DTYPE, SEGMENT_DTYPE
from engine.types import QuantType


def test_a_program_with_two_caches_needs_both() -> None:
    program = Program()
    f32 = int(QuantType.F32)
    for cache in (0, 1):
        program.add_attn(cache, 1, 1, 16, 16, f32, f32, 0, 4096, 1.0, 0.0, 0, 0, True, 0.0, None, None, 0, -1)
    program.finish(4, 64, 64)
    assert program.n_caches == 2
    binding, zeros = Binding(), np.zeros(1, np.int32)
    runs, segments = np.zeros(1, RUN_DTYPE), np.zeros(1, SEGMENT_DTYPE)

    def bind(*caches: int) -> None:
        binding.bind(1, 0, zeros, None, 16, zeros, zeros, zeros, None, 1, 0, None, 16)
        for i in caches:
            binding.bind_cache(i, np.zeros(1, np.uint64), zeros, runs, segments, 1)

    def run() -> None:
        arena, work = LargeBuffer(64), LargeBuffer(work_bytes(program, 1))
        binding.run(program, ThreadPool(1), 1, arena, work, zeros)

    bind(0, 1)
    run()
    for bound in ((), (0,)):
        bind(*bound)
        with pytest.raises(ValueError, match=f"a program with 2 caches, {len(bound)} are bound"):
            run()
    with pytest.raises(ValueError, match="cache 2 behind 1 others"):
        bind(0, 2)
