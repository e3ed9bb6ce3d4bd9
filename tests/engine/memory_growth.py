"""How much memory a fresh process takes for a model and a full context; prints bytes as JSON.

python -m tests.engine.memory_growth MODEL N_CTX TYPE_K TYPE_V [N_THREADS]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine import ContextParams, create_context, load_model
from engine.generate import GenerateParams, generate
from engine.session import Session

N_TURNS = 10
"""Prompts that the context is filled with, so that a recurrent memory has all its snapshots."""


def resident_bytes() -> int:
    """Memory of this process but for what lies in files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon in /proc/self/status")


def main() -> None:
    """Load, fill the context turn by turn, and tell the growth."""
    path, n_ctx, type_k, type_v = sys.argv[1:5]
    n_threads = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    before = resident_bytes()
    growth: dict[str, int] = {}
    model = load_model(path, n_threads=n_threads)
    growth["model"] = resident_bytes() - before
    assert model.tokenizer.n_vocab
    growth["tokenizer"] = resident_bytes() - before - growth["model"]
    ctx = create_context(model, ContextParams(n_ctx=int(n_ctx), type_k=type_k, type_v=type_v))
    session = Session(ctx)
    ids: list[int] = []
    first, later = int(n_ctx) // 2, int(n_ctx) // 2 // N_TURNS - 1  # the first one fills a micro batch
    for n_turn in [first] + [later] * (N_TURNS - 1):
        ids += [3 + (len(ids) + i) * 7919 % (model.hparams.n_vocab - 3) for i in range(n_turn)]
        list(generate(session, ids, GenerateParams(n_predict=2, ignore_eog=True)))
    growth["total"] = resident_bytes() - before
    print(json.dumps(growth))


if __name__ == "__main__":
    main()
