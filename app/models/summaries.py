"""The policy "summarise": what leaves a full context is summed up by the model, and the summary stays in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.bridge.messages import EngineEvent, PromptMessage, ReplyFinished, TextChunk
from app.models.open_chat import OpenChat
from app.models.ports import Engine
from app.settings import Settings
from app.storage.records import MessageRecord

N_SUMMARY = 200
"""Tokens that a summary may have."""

_MAX_CHARS = 6000
"""Of what left, so that the question fits into a context of its own."""


@dataclass(slots=True)
class _Summary:
    leaf_id: int
    ids: frozenset[int]
    text: str = ""


class Summaries:
    """The summaries that are being written, each in a hidden chat that is forgotten afterwards.

    A hidden chat has the number of the real one, negative.

    Args:
        place: puts the text of a summary behind the last message of a chat, (chat_id, leaf_id, text); False where the
            chat has gone on meanwhile: what it was of is summed up with what leaves next.

    Thread: GUI thread.
    """

    def __init__(self, engine: Engine, settings: Settings, place: Callable[[int, int, str], bool]) -> None:
        self._engine, self._settings, self._place = engine, settings, place
        self._by_reply: dict[int, _Summary] = {}
        self._owed: dict[int, frozenset[int]] = {}

    def ask(self, chat: OpenChat, left_ids: frozenset[int], reply_id: int) -> None:
        """Have what has just left summed up, together with the summary before.

        Args:
            reply_id: a number that no message has.
        """
        left_ids |= self._owed.pop(chat.chat.id, frozenset())
        left = [m for m in chat.messages if (m.id in left_ids or is_summary(m)) and m.text.strip()]
        if chat.leaf is None or all(is_summary(m) for m in left):
            return
        text = "\n\n".join(f"{m.role}: {m.text}" for m in left)[-_MAX_CHARS:]
        question = f"Summarise this part of a conversation in a few sentences; keep names and numbers.\n\n{text}"
        self._by_reply[reply_id] = _Summary(chat.leaf.id, left_ids)
        messages, sampling = (PromptMessage(reply_id, "user", question),), self._settings.sampling()
        self._engine.generate(
            -chat.chat.id, reply_id, messages, sampling, N_SUMMARY, 0, frozenset(), chat.began_at, is_temporary=True
        )

    def take(self, event: EngineEvent) -> bool:
        """Take in what the engine tells of a hidden chat; False for any other event."""
        chat_id = getattr(event, "chat_id", 0)
        if chat_id >= 0:
            return False
        if isinstance(event, TextChunk) and event.message_id in self._by_reply:
            self._by_reply[event.message_id].text += event.text
        elif isinstance(event, ReplyFinished):
            self._engine.forget_chat(chat_id)
            summary = self._by_reply.pop(event.message_id, None)
            if summary is not None and not self._is_placed(-chat_id, summary):
                self._owed[-chat_id] = self._owed.get(-chat_id, frozenset()) | summary.ids
        return True

    def _is_placed(self, chat_id: int, summary: _Summary) -> bool:
        text = summary.text.strip()
        return bool(text) and self._place(chat_id, summary.leaf_id, f"{_head()}\n\n{text}")


def is_summary(message: MessageRecord) -> bool:
    """Whether a message stands for what left the context."""
    return message.role == "user" and message.is_pinned and message.text.startswith(_head())


def _head() -> str:
    return QCoreApplication.translate("Summaries", "Summary of what has left the context:")
