"""Sixty kills at random moments; `make crash` does many more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.rounds import SHARES, Rounds

N_PROGRAM = 4


@pytest.mark.skipif(os.name == "nt", reason="needs fork and SIGKILL")
@pytest.mark.timeout(240)
def test_sixty_kills(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, 20)
    try:
        for scenario, n in {**SHARES, "program": N_PROGRAM}.items():
            for _ in range(n - (scenario == "stream") * N_PROGRAM):
                rounds.run(scenario)
    finally:
        rounds.close()
    tally = rounds.tally
    assert sum(tally.rounds.values()) == 60
    assert tally.n_saved + tally.n_in_flight > 5
    # Where the machine is busy elsewhere a flush may take longer than a quarter second.
    assert tally.n_late <= 6
