"""Our own files: JSON Lines, one for each chat and behind it one for each of its messages; nothing is lost.

A chat's line is {"causerie": 1, "chat": {...}}, a message's {"message": {...}} with "id" and "parent" inside the chat.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import cast, get_args

from app.bridge.messages import Overflow, ReplyRecord
from app.exchange.errors import ExchangeError
from app.exchange.fields import Fields, fields, key_of, number_of, role_of, seconds_of, text_of
from app.exchange.grow import Node, grow
from app.storage.records import ChatRecord, ChatTree, Generation, MessageRecord, MessageState, TreeMessage

VERSION = 1


def own_lines(trees: tuple[ChatTree, ...]) -> Iterator[str]:
    """Yield the lines of a file, each with its end."""
    for tree in trees:
        yield _line({"causerie": VERSION, "chat": _chat(tree.chat)})
        for message in tree.messages:
            yield _line({"message": _message(message)})


def own(lines: list[Fields]) -> list[ChatTree | None]:
    """Return the chats of a file of ours.

    Raises: ExchangeError: for a file of a later version.
    """
    trees: list[ChatTree | None] = []
    head: Fields = {}
    messages: list[Fields] = []
    end: Fields = {"chat": {}}
    for line in (*lines, end):
        if "chat" in line:
            if head:
                trees.append(_tree(fields(head.get("chat")), messages))
            if number_of(line.get("causerie")) > VERSION:
                raise ExchangeError("It was written by a later version of Causerie.")
            head, messages = line, []
        else:
            messages.append(fields(line.get("message")))
    return trees


def _line(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _chat(chat: ChatRecord) -> dict[str, object]:
    value = asdict(chat)
    del value["id"], value["is_unread"]
    return value


def _message(message: TreeMessage) -> dict[str, object]:
    m = message.record
    value: dict[str, object] = {
        **{"id": m.id, "parent": m.parent_id, "role": m.role, "text": m.text, "state": m.state},
        **{"is_pinned": m.is_pinned, "error": m.error, "created_at": message.created_at},
    }
    if message.generation is not None:
        made = {"model_fp": m.model_fp, "n_generated": m.n_generated, **asdict(message.generation)}
        value["generation"] = {**made, "token_ids": base64.b64encode(m.token_ids).decode(), **asdict(m.record)}
    return value


def _tree(chat: Fields, messages: list[Fields]) -> ChatTree | None:
    by_key = {key_of(message.get("id")): message for message in messages}
    # A message without text is kept too: the place of a reply that failed.
    nodes = [
        Node(key, key_of(m.get("parent")), role_of(m.get("role")), key, seconds_of(m.get("created_at")))
        for key, m in by_key.items()
    ]
    tree = grow(text_of(chat.get("title")), nodes, key_of(chat.get("leaf_id")), seconds_of(chat.get("used_at")))
    if tree is None:
        return None
    record = replace(
        tree.chat,
        frozen=text_of(chat.get("frozen")) or "{}",
        model_ref=text_of(chat.get("model_ref")),
        n_ctx=_count(chat.get("n_ctx")),
        draft=text_of(chat.get("draft")),
        is_pinned=chat.get("is_pinned") is True,
        overflow=_overflow(chat.get("overflow")),
        sampling=text_of(chat.get("sampling")),
    )
    return ChatTree(record, tuple(_filled(message, by_key[message.record.text]) for message in tree.messages))


def _filled(message: TreeMessage, found: Fields) -> TreeMessage:
    """Return a message, whose text is its key in the file so far, with all that the file knows of it."""
    record: MessageRecord = replace(
        message.record,
        text=text_of(found.get("text")),
        state=_state(found.get("state")),
        is_pinned=found.get("is_pinned") is True,
        error=text_of(found.get("error")),
    )
    made = fields(found.get("generation"))
    if not made:
        return replace(message, record=record)
    record = replace(
        record,
        model_fp=text_of(made.get("model_fp")),
        n_generated=_count(made.get("n_generated")),
        token_ids=_bytes(made.get("token_ids")),
        record=ReplyRecord(
            *(text_of(made.get(k)) for k in ("template_hash", "params", "engine", "isa", "context_hash"))
        ),
    )
    generation = Generation(
        *(_count(made.get("n_prompt")), _count(made.get("n_reused")), _count(made.get("n_computed"))),
        *(text_of(made.get("finish")), number_of(made.get("prefill_ms")), number_of(made.get("gen_ms"))),
    )
    return TreeMessage(record, message.created_at, generation)


def _count(value: object) -> int:
    return max(int(number_of(value)), 0)


def _bytes(value: object) -> bytes:
    try:
        found = base64.b64decode(text_of(value), validate=True)
    except (binascii.Error, ValueError):
        return b""
    return found if len(found) % 4 == 0 else b""


def _state(value: object) -> MessageState:
    is_over = value in get_args(MessageState) and value not in ("queued", "streaming")
    return cast(MessageState, value) if is_over else "interrupted"


def _overflow(value: object) -> Overflow:
    return cast(Overflow, value) if value in get_args(Overflow) else "shift"
