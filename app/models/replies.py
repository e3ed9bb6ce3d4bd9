"""The replies that are being made or are not on disk yet, whichever chat is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QCoreApplication

from app.bridge.messages import ReplyFinished, TextChunk
from app.storage.records import MessageRecord, MessageState

_STATES: dict[str, MessageState] = {"failed": "failed", "cancelled": "stopped"}


@dataclass(slots=True)
class Reply:
    """One reply from Send until its end is on disk.

    Attributes:
        record: the message as far as it is written.
        is_live: its job is not over.
        is_saved: its end is on disk; storage may know of the end before the window does.
        is_stopping: a person has stopped it.
    """

    job_id: int
    record: MessageRecord
    is_live: bool = True
    is_saved: bool = False
    is_stopping: bool = False

    def take_text(self, event: TextChunk) -> None:
        """Take in more text."""
        self.record = replace(
            self.record, text=self.record.text + event.text, n_generated=event.n_generated, tok_s=event.tok_s
        )

    def finish(self, event: ReplyFinished) -> None:
        """Take in how it ended."""
        self.is_live = False
        self.record = replace(
            self.record,
            state=_STATES.get(event.finish, "done"),
            error=str(event.error) if event.error else "",
            token_ids=event.token_ids,
            model_fp=event.model_fp,
            record=event.record,
            n_generated=event.stats.n_generated,
            tok_s=event.stats.tok_s,
        )


def end_note(event: ReplyFinished) -> str:
    """Return what a person should know of how a reply ended, one line; "" where there is nothing."""
    if event.finish == "context":
        text = "The context is full, and nothing in it may leave: the reply ends here."
    elif event.finish == "length":
        text = "The reply has reached the longest length that the settings allow."
    else:
        return ""
    return QCoreApplication.translate("Replies", text)


class Replies:
    """The replies by message; a chat has at most one that is live.

    Thread: GUI thread.
    """

    def __init__(self) -> None:
        self._by_message: dict[int, Reply] = {}

    def add(self, reply: Reply) -> None:
        """Keep a reply that was just asked for."""
        self._by_message[reply.record.id] = reply

    def of_message(self, message_id: int) -> Reply | None:
        """Return the reply that writes a message."""
        return self._by_message.get(message_id)

    def live_in(self, chat_id: int | None) -> Reply | None:
        """Return the reply that is being made in a chat, or waits there."""
        return next((r for r in self._by_message.values() if r.is_live and r.record.chat_id == chat_id), None)

    def finish(self, event: ReplyFinished) -> Reply | None:
        """Note how a reply ended and return it, None where it is not known."""
        reply = self._by_message.get(event.message_id)
        if reply is not None:
            reply.finish(event)
            self._forget_if_over(reply)
        return reply

    def mark_saved(self, message_id: int) -> None:
        """Note that a reply's end is on disk."""
        reply = self._by_message.get(message_id)
        if reply is not None:
            reply.is_saved = True
            self._forget_if_over(reply)

    def overlay(self, records: Iterable[MessageRecord]) -> list[MessageRecord]:
        """Return messages as read from disk, with what is known better here put in their place."""
        return [reply.record if (reply := self._by_message.get(r.id)) else r for r in records]

    def _forget_if_over(self, reply: Reply) -> None:
        if reply.is_saved and not reply.is_live:
            del self._by_message[reply.record.id]
