"""The sessions that share a context: one cache, one thread, all replies in one batch.

Between `app.bridge.local_engine` and the engine's scheduler. Imported in the engine thread only.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from app.bridge.messages import Overflow
from app.bridge.pool import N_SESSIONS
from engine import ContextParams, Model, create_context
from engine.scheduler import JobEvent, JobRequest, Scheduler
from engine.session import Forecast, Session
from engine.turns import Turn

Result = TypeVar("Result")


class SlotGroup:
    """A context with a slot for each chat in memory.

    Thread: engine thread; replies are made in the scheduler's.
    """

    def __init__(self, model: Model, n_ctx: int, kv_bytes_max: int) -> None:
        params = ContextParams(n_ctx=n_ctx, n_seq_max=N_SESSIONS, n_threads=model.n_threads, kv_bytes_max=kv_bytes_max)
        self._ctx = create_context(model, params)
        self._scheduler = Scheduler(self._ctx)
        self._free = list(range(N_SESSIONS))

    def take_slot(self) -> int:
        """Take a slot; there are as many as the pool keeps sessions."""
        return self._free.pop()

    def give_back(self, slot_id: int) -> None:
        """Forget what is in a slot and let others have it."""
        self.call(self.session(slot_id).clear)
        self._free.append(slot_id)

    def session(self, slot_id: int) -> Session:
        """The session of a slot; only `call` may change it."""
        return self._scheduler.slot(slot_id).session

    def call(self, function: Callable[[], Result]) -> Result:
        """Run something between two steps of the replies; raises what it raises."""
        return self._scheduler.call(function).result()

    def submit(self, request: JobRequest, on_event: Callable[[JobEvent], None]) -> Callable[[], None]:
        """Begin a reply; returns what stops it."""
        return partial(self._scheduler.cancel, self._scheduler.submit(request, on_event))

    def share(self, slot_id: int, turns: Sequence[Turn], out_keys: set[str], overflow: Overflow) -> str:
        """Let a slot have what any other has of a prompt, where that is more: a fork or a common beginning costs nothing.

        Runs in `call`.

        Args:
            out_keys: turns that are out of the chat's context, where the slot knows nothing of it; else it knows
                better, but for those that a person has asked back.
            overflow: what happens when the context is full.

        Returns: a digest of the tokens that the reply will be made from; it begins with "shifted" where some are out.
        """
        own = self.session(slot_id)
        own.overflow = "stop" if overflow == "stop" else "shift"
        own.out_keys = own.out_keys & out_keys if own.n_used else out_keys
        others = [self.session(i) for i in range(N_SESSIONS) if i != slot_id]
        best = max(others, key=lambda session: session.n_ready(own.kept(turns)))
        if best.n_ready(own.kept(turns)) > own.n_ready(turns):
            kept_out = set(own.out_keys)
            own.copy_from(best)
            own.out_keys = kept_out
        tokens = [token for turn in own.kept(turns) for token in turn.tokens]
        digest = hashlib.blake2b(array("i", tokens).tobytes(), digest_size=8).hexdigest()
        return f"shifted {digest}" if own.out_keys else digest

    def forecast(self, slot_id: int | None, turns: Sequence[Turn], n_predict: int, out_keys: set[str]) -> Forecast:
        """What a prompt needs in a slot, or in one that would be taken for it. Runs in `call`."""
        sessions = [self.session(i) for i in range(N_SESSIONS)]
        if slot_id is not None:
            own = self.session(slot_id)
            own.out_keys = own.out_keys & out_keys if own.n_used else out_keys
            forecast, kept = own.forecast(turns, n_predict), own.kept(turns)
        else:
            empty = Session(self._ctx, self._free[-1] if self._free else 0)
            empty.out_keys = out_keys
            forecast, kept = empty.forecast(turns, n_predict), empty.kept(turns)
        return replace(forecast, n_ready=max(forecast.n_ready, *(session.n_ready(kept) for session in sessions)))

    def close(self) -> None:
        """End the thread and let go of the cache."""
        self._scheduler.close()
        self._ctx.close()
