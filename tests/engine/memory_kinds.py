"""One small model for each kind of memory, and what differs between the kinds."""

from __future__ import annotations

from dataclasses import dataclass

import engine
from tests.engine.oracle_cases import context

LOSSY = {"f16": 1e-5, "bf16": 1e-3, "q8_0": 1e-3, "q5_1": 3e-2, "q5_0": 3e-2, "q4_1": 0.2, "q4_0": 0.2, "iq4_nl": 0.2}
"""NMSE of logits that a cache type may cost in these models of random weights."""


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """A kind of memory.

    Attributes:
        name: of the kind; case: of the model under tests/data.
        has_states: a recurrent state cannot forget a part, and stays what it is when positions move.
    """

    name: str
    case: str
    has_states: bool = False

    def context(self, **more: object) -> engine.Context:
        """A context of the model, with an f32 cache unless said otherwise."""
        return context(self.case, **more)


KINDS = (
    MemoryKind("unified", "llama"),
    MemoryKind("iswa", "gemma3"),
    MemoryKind("mla", "deepseek2-yarn"),
    MemoryKind("recurrent", "mamba", has_states=True),
    MemoryKind("hybrid", "falcon-h1", has_states=True),
)
