"""A job: what is asked of the scheduler, and what it tells about it.

Stands between whoever serves requests and `engine.scheduler.core`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.cancel import CancelFlag
from engine.errors import RequestError
from engine.generate import Event, GenerateParams
from engine.turns import Turn
from engine.types import F32Array


class QueueFullError(RequestError):
    """As many jobs wait as may; ask again later."""

    def __init__(self, n_waiting: int) -> None:
        super().__init__(n_waiting)
        self.n_waiting = n_waiting

    def __str__(self) -> str:
        return f"{self.n_waiting} requests wait already; ask again later"


class SchedulerClosedError(RequestError):
    """The scheduler has ended."""

    def __str__(self) -> str:
        return "the server is ending"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job shall do.

    Attributes:
        prompt: the turns of a conversation, or ids of a text that goes on.
        params: what the reply should be like.
        slot_id: the slot it has to run in; None: the one that has most of the prompt.
        is_prompt_cached: start from what the slot has of the prompt; else compute all of it.
        n_reuse: chunks of at least so many tokens behind an edit are moved instead of computed again, which is near
            enough but not the same; 0: none.
        n_top: tell how likely each token was, and the n_top most likely ones; None: do not.
    """

    prompt: Sequence[Turn] | Sequence[int]
    params: GenerateParams = field(default_factory=GenerateParams)
    slot_id: int | None = None
    is_prompt_cached: bool = True
    n_reuse: int = 0
    n_top: int | None = None

    def turns(self) -> Sequence[Turn]:
        """The prompt as turns."""
        turns = [turn for turn in self.prompt if isinstance(turn, Turn)]
        return turns or [Turn("prompt", tuple(id for id in self.prompt if not isinstance(id, Turn)), pinned=True)]


@dataclass(frozen=True, slots=True)
class TokenScored:
    """How likely a token was, before any sampling parameter; comes in front of its text.

    Attributes:
        token: its id.
        logprob: natural logarithm of its probability.
        top: ids and logprobs of the most likely tokens, most likely first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has ended without a reply, or in the middle of one; always the last event."""

    error: Exception


JobEvent = Event | TokenScored | JobFailed


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A request on its way.

    Attributes:
        on_event: told everything, in the scheduler's thread; it must neither block nor raise. The last event is
            Finished or JobFailed.
        cancel: set by `Scheduler.cancel`.
    """

    request: JobRequest
    on_event: Callable[[JobEvent], None]
    cancel: CancelFlag = field(default_factory=CancelFlag)


def score(logits: F32Array, token: int, n_top: int) -> TokenScored:
    """How likely a token was, from logits f32[n_vocab]."""
    shifted = logits.astype(np.float64) - float(logits.max())
    logprobs = shifted - np.log(np.exp(shifted).sum())
    n_top = min(n_top, len(logprobs))
    top = np.argpartition(-logprobs, n_top - 1)[:n_top] if n_top else np.zeros(0, dtype=np.intp)
    order = top[np.argsort(-logprobs[top], kind="stable")]
    return TokenScored(token, float(logprobs[token]), tuple((int(i), float(logprobs[i])) for i in order))
