"""The load test in small: no torn stream, nothing left running."""

from __future__ import annotations

from pathlib import Path

from tests.bench.serve_load import measure

TINY = Path(__file__).parents[1] / "data" / "llama" / "model.gguf"


def test_many_clients_for_a_short_time() -> None:
    got = measure(TINY, n_clients=24, seconds=2.0, n_slots=4, n_queue=12, n_ctx=160)
    outcomes = got["outcomes"]
    assert isinstance(outcomes, dict)
    assert set(outcomes) == {"done", "left", "refused"}, outcomes
    assert outcomes["done"] > 20
