"""Turns of a conversation as token ids, and which of them leave when the context is full.

Stands between the chat template, which makes turns of messages, and `engine.session`, which keeps their cells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.errors import ContextFullError

REMEDY = "shorten the message, unpin a turn, or use a larger context"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message in the prompt.

    Attributes:
        key: names the message, the same each time; no two turns of a prompt share one.
        tokens: its ids, with everything the template puts around its text.
        pinned: it never leaves the context; a system prompt.
    """

    key: str
    tokens: tuple[int, ...]
    pinned: bool = False


@dataclass(slots=True)
class Span:
    """A turn's share of the context: the next n_tokens of it."""

    key: str
    n_tokens: int
    pinned: bool


def split_bos(turns: Sequence[Turn], bos_token_id: int | None) -> list[Turn]:
    """The turns, with a leading BOS as a pinned turn of its own: models answer badly once it has left."""
    i = next((i for i, turn in enumerate(turns) if turn.tokens), 0)
    if not turns or turns[i].pinned or turns[i].tokens[:1] != (bos_token_id,):
        return list(turns)
    first = turns[i]
    return [*turns[:i], Turn("", first.tokens[:1], pinned=True), Turn(first.key, first.tokens[1:]), *turns[i + 1 :]]


def choose_leaving(spans: Sequence[Span], n_ctx: int, n_room: int, n_step: int) -> set[str]:
    """Keys of the oldest turns that have to leave so that n_room tokens can follow; many at once, so that it is seldom.

    Args:
        spans: what is in the context, oldest first; pinned ones and the last stay.
        n_ctx: tokens that the context holds.
        n_room: free tokens wanted behind the turns; while there are as many, nothing leaves.
        n_step: free tokens to make beyond n_room once something has to leave.

    Returns: an empty set while nothing has to leave. Less room than wanted is no error as long as one token has room.
    Raises: ContextFullError: not even one token would have room.
    """
    n_used = sum(span.n_tokens for span in spans)
    leaving: set[str] = set()
    if n_used + n_room > n_ctx:
        for span in spans[:-1]:
            if n_used + n_room + n_step <= n_ctx:
                break
            if not span.pinned:
                leaving.add(span.key)
                n_used -= span.n_tokens
    if n_used >= n_ctx:
        raise ContextFullError(n_used + 1, n_ctx, "tokens", REMEDY)
    return leaving


def ranges_of(spans: Sequence[Span], keys: Collection[str]) -> list[tuple[int, int]]:
    """Where the turns with these keys lie in the context: half-open ranges of tokens, neighbours joined, ascending."""
    ranges: list[tuple[int, int]] = []
    end = 0
    for span in spans:
        begin, end = end, end + span.n_tokens
        if span.key in keys and begin < end:
            if ranges and ranges[-1][1] == begin:
                begin = ranges.pop()[0]
            ranges.append((begin, end))
    return ranges


def cut_spans(spans: Sequence[Span], n_tokens: int) -> list[Span]:
    """The spans of the first n_tokens tokens of the context."""
    cut: list[Span] = []
    for span in spans:
        n = min(span.n_tokens, n_tokens)
        cut.append(Span(span.key, n, span.pinned))
        n_tokens -= n
    return [span for span in cut if span.n_tokens]
