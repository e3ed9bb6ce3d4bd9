"""Random operations on contexts of every kind: no difference to the ledger and to fresh runs, no growth of memory.

CAUSERIE_SOAK_S says for how many seconds, CAUSERIE_SOAK_SEED with which seed.
"""

from __future__ import annotations

import os
import time

import psutil
import pytest

from tests.soak.run import Soak

SECONDS = float(os.environ.get("CAUSERIE_SOAK_S", "10"))
WARM_UP = 0.3
"""Share of the time behind which memory is at its size."""
GROWTH_MAX_BYTES = 24 << 20


@pytest.mark.timeout(SECONDS + 120)
def test_soak() -> None:
    seed = int(os.environ.get("CAUSERIE_SOAK_SEED", time.time_ns() % 10**9))
    soak = Soak(seed)
    try:
        soak.run(WARM_UP * SECONDS)
        before = psutil.Process().memory_info().rss
        soak.run((1 - WARM_UP) * SECONDS)
        growth = psutil.Process().memory_info().rss - before
    except BaseException as error:
        error.add_note(f"CAUSERIE_SOAK_SEED={seed}, step {soak.n_steps}, behind {', '.join(soak.last)}")
        raise
    contexts = [context for pair in soak.contexts for context in pair]
    soak.close()
    assert growth < GROWTH_MAX_BYTES
    assert all(context.n_compared for context in contexts)
    assert all(context.n_refused for context in contexts)
