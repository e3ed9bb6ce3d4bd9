"""Turns of a conversation as token ids, and which of them stay when the context is full.

Stands between the chat template, which makes turns of messages, and `engine.session`, which keeps their cells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.errors import ContextFullError

REMEDY = "shorten the message, unpin a turn, or load the model with a larger context"


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


def count_tokens(turns: Sequence[Turn]) -> int:
    """Tokens of all turns together."""
    return sum(len(turn.tokens) for turn in turns)


def split_bos(turns: Sequence[Turn], bos_token_id: int | None) -> list[Turn]:
    """The turns, with a leading BOS as a pinned turn of its own: models answer badly once it has left."""
    if not turns or turns[0].pinned or turns[0].tokens[:1] != (bos_token_id,):
        return list(turns)
    first = turns[0]
    return [Turn("", first.tokens[:1], pinned=True), Turn(first.key, first.tokens[1:]), *turns[1:]]


def choose_leaving(turns: Sequence[Turn], n_ctx: int, n_room: int, n_step: int) -> list[Turn]:
    """The oldest turns that have to leave so that n_room tokens can follow; all at once, so that it is seldom.

    Args:
        turns: what is in the context, oldest first; pinned ones and the last stay.
        n_ctx: tokens that the context holds.
        n_room: free tokens wanted after the turns; while there are as many, nothing leaves.
        n_step: free tokens to make beyond n_room once something has to leave.

    Returns: [] while nothing has to leave. Less room than wanted is no error as long as one token has room.
    Raises: ContextFullError: not even one token would have room.
    """
    n_used = count_tokens(turns)
    leaving: list[Turn] = []
    if n_used + n_room > n_ctx:
        for turn in turns[:-1]:
            if n_used + n_room + n_step <= n_ctx:
                break
            if not turn.pinned:
                leaving.append(turn)
                n_used -= len(turn.tokens)
    if n_used >= n_ctx:
        raise ContextFullError(n_used + 1, n_ctx, "tokens", REMEDY)
    return leaving


def ranges_of(turns: Sequence[Turn], leaving: Collection[Turn], n_tokens: int) -> list[tuple[int, int]]:
    """Where the leaving turns lie among the first n_tokens tokens: half-open ranges, neighbours joined, ascending."""
    ranges: list[tuple[int, int]] = []
    at = 0
    for turn in turns:
        begin, at = min(at, n_tokens), min(at + len(turn.tokens), n_tokens)
        if begin < at and turn in leaving:
            if ranges and ranges[-1][1] == begin:
                begin = ranges.pop()[0]
            ranges.append((begin, at))
    return ranges
