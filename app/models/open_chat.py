"""The chat that is open, as records: what of it is shown, and what of it goes into a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from app.bridge.messages import PromptMessage
from app.models.conversation import MessageItem
from app.storage.records import ChatRecord, MessageRecord

TITLE_CHARS = 60


class OpenChat:
    """A chat with the messages of its branch, from the root on.

    Attributes:
        chat: the chat's own values.
        messages: its branch.
        out_ids: messages that are out of the context.
        is_temporary: nothing of it is written.
    """

    def __init__(self, chat: ChatRecord, messages: Iterable[MessageRecord], out_ids: frozenset[int]) -> None:
        self.chat = chat
        self.messages = list(messages)
        self.out_ids = out_ids
        self.is_temporary = False

    @property
    def leaf(self) -> MessageRecord | None:
        """The last message of the branch."""
        return self.messages[-1] if self.messages else None

    @property
    def began_at(self) -> str:
        """Local time of the first Send in ISO form; empty where the chat's frozen part has none."""
        try:
            value = json.loads(self.chat.frozen)["began_at"]
            datetime.fromisoformat(value)
        except (ValueError, KeyError, TypeError):
            return ""
        return str(value)

    def items(self) -> list[MessageItem]:
        """Return the messages as they are shown."""
        return [message_item(m, m.id in self.out_ids) for m in self.messages]

    def index_of(self, message_id: int) -> int:
        """Return the place of a message in the branch, -1 where it is not in it."""
        return next((i for i, m in enumerate(self.messages) if m.id == message_id), -1)

    def message(self, message_id: int) -> MessageRecord | None:
        """Return a message of the branch."""
        i = self.index_of(message_id)
        return self.messages[i] if i >= 0 else None

    def exchange_of(self, message_id: int) -> set[int]:
        """Return the ids of a message and of the reply or question that belongs to it."""
        i = self.index_of(message_id)
        j = i - 1 if self.messages[i].role == "assistant" else i + 1
        is_pair = 0 <= j < len(self.messages) and {self.messages[i].role, self.messages[j].role} == {
            "user",
            "assistant",
        }
        return {message_id, self.messages[j].id} if is_pair else {message_id}

    def put(self, record: MessageRecord) -> None:
        """Change the message with this id."""
        for i in range(len(self.messages) - 1, -1, -1):
            if self.messages[i].id == record.id:
                self.messages[i] = record
                return


def message_item(record: MessageRecord, is_out: bool) -> MessageItem:
    """Return a message as it is shown."""
    return MessageItem(
        id=record.id,
        role=record.role,
        text=record.text,
        state=record.state,
        is_out=is_out,
        is_pinned=record.is_pinned,
        error=record.error,
        n_tokens=record.n_generated,
        tok_s=record.tok_s,
        version=record.siblings.index(record.id) + 1 if record.siblings else 1,
        n_versions=len(record.siblings) or 1,
    )


def prompt_of(messages: Sequence[MessageRecord]) -> tuple[PromptMessage, ...]:
    """Return the branch as a prompt.

    A reply that never got a word is left out. Where it failed, so is what it should have answered, or a message that
    is too long would stand in the way for ever. Else that is joined with what follows: templates want the roles to
    take turns.
    """
    wordless = {m.id: m for m in messages if m.role == "assistant" and not m.text.strip()}
    failed = {m.parent_id for m in wordless.values() if m.state == "failed"}
    prompt: list[PromptMessage] = []
    for m in messages:
        if m.id in wordless or (m.id in failed and m is not messages[-1]):
            continue
        message = PromptMessage(m.id, m.role, m.text, m.token_ids, m.model_fp, m.is_pinned)
        if prompt and prompt[-1].role == message.role:
            before = prompt.pop()
            text, is_pinned = f"{before.text}\n\n{message.text}", before.is_pinned or message.is_pinned
            message = replace(message, text=text, token_ids=b"", model_fp="", is_pinned=is_pinned)
        prompt.append(message)
    return tuple(prompt)


def title_of(text: str) -> str:
    """Return a chat's title made of its first message: its first line, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_CHARS:
        return line
    cut = line[: TITLE_CHARS + 1].rsplit(None, 1)[0] if " " in line[:TITLE_CHARS] else line[:TITLE_CHARS]
    return f"{cut.rstrip(' ,.;:')}…"
