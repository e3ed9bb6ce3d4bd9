"""What a range of positions means to every memory."""

from __future__ import annotations

from engine.memory.base import POS_END


def resolved_range(p0: int, p1: int) -> tuple[int, int]:
    """A half-open range with the meaning of negative bounds resolved; an inverted one is empty."""
    p0 = min(max(p0, 0), POS_END)
    return p0, POS_END if p1 < 0 else min(max(p1, p0), POS_END)
