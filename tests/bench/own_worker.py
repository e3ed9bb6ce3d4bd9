"""Runs this engine on request: JSON lines in, JSON lines out; the counterpart of `peer_worker.py`.

Beside `pp` and `tg` its `run` answers `greedy`: tokens a second of whole replies, with sampling, detokenising and events.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from cext.executor import isa
from engine import ContextParams, create_context, load_model
from engine.cli.bench import bench_once
from engine.generate import Finished, GenerateParams, generate
from engine.sampling import SamplerParams
from engine.session import Session


class Own:
    """One model and one context."""

    def __init__(self, model: str, n_threads: int, n_ctx: int) -> None:
        self._model = load_model(Path(model), n_threads=n_threads)
        params = ContextParams(n_ctx=n_ctx, n_batch=n_ctx, n_ubatch=512, n_threads=n_threads)
        self._ctx = create_context(self._model, params)

    def run(self, n_prompt: int, n_gen: int, seed: int) -> dict[str, float]:
        """As the peer's, and a greedy reply of n_gen tokens to the same kind of prompt."""
        rng = random.Random(seed)
        pp, tg = bench_once(self._ctx, n_prompt, n_gen, rng)
        prompt = [rng.randrange(self._model.hparams.n_vocab) for _ in range(n_prompt)]
        params = GenerateParams(SamplerParams(temperature=0.0), n_gen, ignore_eog=True)
        finished = [event for event in generate(Session(self._ctx), prompt, params) if isinstance(event, Finished)]
        return {"pp": pp, "tg": tg, "greedy": finished[0].stats.tok_s}


def main() -> None:
    """Serve requests until stdin ends."""
    own: Own | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if request.pop("do") == "load":
            began = time.perf_counter()
            own = Own(**request)
            answer: dict[str, Any] = {"load_s": time.perf_counter() - began, "isa": isa()}
        else:
            assert own is not None
            answer = dict(own.run(**request))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
