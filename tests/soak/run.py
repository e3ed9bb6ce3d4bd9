"""Contexts of every kind of memory, one random operation after the other."""

from __future__ import annotations

import random
import time
from collections import deque

from tests.engine.memory_kinds import KINDS
from tests.soak.context import SoakContext
from tests.soak.ledger import Book

OPERATIONS = {
    "decode": 24, "compare": 8, "decode_shared": 6, "decode_nonsense": 3, "abort": 6, "change_threads": 1,
    "seq_rm": 6, "step_back": 6, "forget": 3, "seq_cp": 8, "seq_add": 6, "seq_div": 2, "shift_context": 4, "tidy": 4,
    "clone": 5, "load": 6,
}  # fmt: skip
"""Methods of `SoakContext` and how often each is chosen."""

EXACT, HALF = 1e-10, 1e-4
"""NMSE of logits to a fresh run: with an f32 cache, with an f16 one."""
PRUNE_STEPS = 2000


class Soak:
    """Two contexts of each kind: one of f32, one mostly of f16 with few threads, small micro batches and little room.

    Args:
        seed: of everything that is random; the same seed chooses the same operations.

    Attributes:
        n_steps: operations done; last: the newest of them, for the message of a failure.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.contexts: list[tuple[SoakContext, SoakContext]] = []
        for kind in KINDS:
            book = Book()
            wide = SoakContext(kind, book, self.rng, EXACT, n_ctx=256)
            # The model of latents has experts, and a rounded key can tip which of them are chosen.
            cache_type = "f32" if kind.name in ("recurrent", "mla") else "f16"
            narrow = SoakContext(
                kind, book, self.rng, HALF if cache_type == "f16" else EXACT, n_ctx=192, n_ubatch=17, n_threads=1,
                type_k=cache_type, type_v=cache_type, kv_bytes_max=400_000,
            )  # fmt: skip
            self.contexts.append((wide, narrow))
        self.n_steps = 0
        self.last: deque[str] = deque(maxlen=20)

    def step(self) -> None:
        """One operation on one context, then a look at it."""
        wide, narrow = self.rng.choice(self.contexts)
        context = self.rng.choice((wide, narrow))
        (name,) = self.rng.choices(list(OPERATIONS), list(OPERATIONS.values()))
        self.last.append(f"{context.kind.name} {'wide' if context is wide else 'narrow'} {name}")
        if name == "load":
            context.load(wide)
        else:
            getattr(context, name)()
        context.check()
        self.n_steps += 1
        if self.n_steps % PRUNE_STEPS == 0:
            self._prune()

    def _prune(self) -> None:
        for pair in self.contexts:
            ledgers = [x.ledger for x in pair] + [ledger for x in pair for _, ledger, _ in x.twins]
            pair[0].ledger.book.keep(ledgers)

    def run(self, seconds: float) -> None:
        """Operations for that long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()

    def close(self) -> None:
        """Close all contexts; nothing may be left."""
        for pair in self.contexts:
            for context in pair:
                context.close()
