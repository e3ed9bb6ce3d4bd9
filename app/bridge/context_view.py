"""What the engine tells of a chat's context when it is asked: what a prompt would cost, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One message in a chat's context, or out of it.

    Attributes:
        pos: position of the first of its n_tokens.
    """

    message_id: int
    is_out: bool
    pos: int = 0
    n_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ContextView:
    """What is in a chat's context.

    Attributes:
        rows: its messages.
        text: its tokens as text, control tokens too.
        kv_type: how keys and values are kept.
        n_ctx: tokens that it holds; 0: the chat is not in memory.
        file_bytes: size of its session file, 0 for none.
    """

    chat_id: int
    rows: tuple[ContextRow, ...] = ()
    text: str = ""
    kv_type: str = ""
    n_used: int = 0
    n_ctx: int = 0
    file_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a prompt costs.

    Attributes:
        n_draft: tokens of its last message.
        n_ready: tokens that are in the context already; n_to_compute: the others of the prompt.
        n_left: tokens that have room behind it; negative: it does not fit at all.
        n_leaving: messages that have to leave the context for it.
    """

    n_draft: int
    n_ready: int
    n_to_compute: int
    n_left: int
    n_leaving: int


@dataclass(frozen=True, slots=True)
class CostKnown:
    """What sending a draft would cost."""

    chat_id: int
    draft: str
    cost: Cost
