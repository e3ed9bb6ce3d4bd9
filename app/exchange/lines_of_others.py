"""Chats of programs and data sets that keep one line of messages: Jan, ShareGPT, lists of role and content."""

from __future__ import annotations

from app.exchange.fields import Fields, content_of, fields, items, role_of, seconds_of, text_of
from app.exchange.grow import line
from app.storage.records import ChatTree


def jan(rows: list[Fields]) -> list[ChatTree | None]:
    """Return the threads whose messages stand in a `messages.jsonl` of Jan."""
    threads: dict[str, list[Fields]] = {}
    for row in rows:
        threads.setdefault(text_of(row.get("thread_id")), []).append(row)
    return [
        line("", [(role_of(row.get("role")), content_of(row.get("content"))) for row in thread], _last_time(thread))
        for thread in threads.values()
    ]


def sharegpt(chat: Fields) -> ChatTree | None:
    """Return a conversation with "from" and "value"."""
    turns = [fields(turn) for turn in items(chat.get("conversations"))]
    return line("", [(role_of(turn.get("from")), text_of(turn.get("value"))) for turn in turns])


def role_and_content(chat: Fields) -> ChatTree | None:
    """Return a conversation with "role" and "content", as requests have it."""
    turns = [fields(turn) for turn in items(chat.get("messages"))]
    return line(
        text_of(chat.get("title")), [(role_of(turn.get("role")), content_of(turn.get("content"))) for turn in turns]
    )


def _last_time(rows: list[Fields]) -> float:
    return max((seconds_of(row.get("created_at")) for row in rows), default=0.0)
