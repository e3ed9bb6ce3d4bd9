"""Slots: sequences of one context that take one job after the other, and which of them a job goes to.

Stands between `engine.scheduler.core`, which fills them, and `engine.session`, the memory of each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.context.core import Context
from engine.errors import ParamError
from engine.generate import Reply
from engine.scheduler.job import Job, JobRequest
from engine.session import Session

WORTH_KEEPING = 0.5
"""A slot that would lose more than this share of its tokens is copied from rather than taken over."""


@dataclass(slots=True, eq=False)
class Slot:
    """A sequence with what it remembers and the job that it works on.

    Attributes:
        job, reply: what runs in it; None while it is idle.
        used_at: when its last job ended, of time.monotonic.
    """

    session: Session
    job: Job | None = None
    reply: Reply | None = None
    used_at: float = 0.0

    @property
    def slot_id(self) -> int:
        """Its number, that of its sequence."""
        return self.session.seq_id

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a job."""
        return self.job is None

    @property
    def is_generating(self) -> bool:
        """Whether its prompt is computed and what is pending is the newest token of the reply."""
        return self.job is not None and len(self.session.pending) <= 1

    def free(self) -> None:
        """End its job; what it computed stays."""
        if self.reply is not None:
            self.reply.close()
        self.job = self.reply = None
        self.used_at = time.monotonic()


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """A slot as others may see it."""

    slot_id: int
    n_ctx: int
    is_processing: bool
    n_tokens: int
    n_pending: int


class Slots:
    """All slots of a context: as many as it has sequences.

    Thread: the scheduler's.
    """

    def __init__(self, ctx: Context) -> None:
        self._slots = [Slot(Session(ctx, seq_id)) for seq_id in range(ctx.n_seq_max())]

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, slot_id: int) -> Slot:
        """One by its number. Raises: ParamError: there is none."""
        if not 0 <= slot_id < len(self._slots):
            raise ParamError(f"slot {slot_id}: there are slots 0 to {len(self._slots) - 1}")
        return self._slots[slot_id]

    def active(self) -> list[Slot]:
        """Those with a job."""
        return [slot for slot in self._slots if not slot.is_idle]

    def infos(self) -> tuple[SlotInfo, ...]:
        """What they do now."""
        return tuple(
            SlotInfo(s.slot_id, s.session.n_ctx, not s.is_idle, s.session.n_used, len(s.session.pending))
            for s in self._slots
        )

    def choose(self, request: JobRequest) -> Slot | None:
        """An idle slot for a request, with as much of its prompt as any slot has; None while none is idle."""
        idle = [slot for slot in self._slots if slot.is_idle]
        if request.slot_id is not None:
            idle = [slot for slot in idle if slot.slot_id == request.slot_id]
        if not idle:
            return None
        oldest = min(idle, key=lambda slot: (slot.session.n_used > 0, slot.used_at))
        if not request.is_prompt_cached:
            return oldest
        turns = request.turns()
        n_ready = {slot.slot_id: slot.session.n_ready(turns) for slot in self._slots}
        best = max(idle, key=lambda slot: n_ready[slot.slot_id])
        if best is oldest or n_ready[best.slot_id] >= WORTH_KEEPING * best.session.n_used:
            chosen = best
        else:
            chosen = oldest  # best holds a conversation that shares little more than a system prompt
        source = max(self._slots, key=lambda slot: n_ready[slot.slot_id])
        if n_ready[source.slot_id] > n_ready[chosen.slot_id]:
            chosen.session.copy_from(source.session)
        return chosen

    def forget_oldest(self) -> bool:
        """Give up the cache of the slot that has been idle longest; False where no idle slot has any."""
        idle: Sequence[Slot] = [slot for slot in self._slots if slot.is_idle and slot.session.n_used]
        if not idle:
            return False
        min(idle, key=lambda slot: slot.used_at).session.clear()
        return True
