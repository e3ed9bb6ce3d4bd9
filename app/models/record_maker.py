"""New chats and messages as records, each with a number of its own."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from app.bridge.messages import EstimateCost, Role
from app.models.open_chat import OpenChat, prompt_of, title_of
from app.settings import Settings
from app.storage.records import ChatRecord, MessageRecord


class RecordMaker:
    """Makes records; what enters a chat's prompt is fixed when the chat is made.

    Attributes:
        next_id: the first free number, for chats and messages alike; 0 until storage has told it.

    Thread: GUI thread.
    """

    def __init__(self, settings: Settings) -> None:
        self.next_id = 0
        self._settings = settings

    def chat(self, text: str) -> ChatRecord:
        """Return a new chat that begins with this message."""
        return replace(self.chat_like(text), id=self.take_ids())

    def chat_like(self, text: str) -> ChatRecord:
        """Return what `chat` would return now, with the id 0."""
        frozen = {"system_prompt": self._settings.system_prompt, "began_at": time.strftime("%Y-%m-%dT%H:%M:%S")}
        now = time.time()
        return ChatRecord(
            0,
            title_of(text),
            now,
            frozen=json.dumps(frozen),
            n_ctx=self._settings.n_ctx,
            overflow=self._settings.overflow_policy(),
        )

    def opening(self, chat: OpenChat) -> list[MessageRecord]:
        """Return what a new chat begins with, without a number of its own: the system prompt, where there is one."""
        text = self._settings.system_prompt
        return [MessageRecord(-2, chat.chat.id, None, "system", text, is_pinned=True)] if text.strip() else []

    def fork(self, chat: ChatRecord, n_messages: int, title: str) -> tuple[ChatRecord, int]:
        """Return a chat like another one, and the first of n_messages numbers for the copies of its messages."""
        first_id = self.take_ids(n_messages)
        return replace(chat, id=self.take_ids(), title=title, used_at=time.time(), leaf_id=None, draft=""), first_id

    def message(self, chat: OpenChat, parent: MessageRecord | None, role: Role, text: str) -> MessageRecord:
        """Return a new message behind its parent."""
        return MessageRecord(self.take_ids(), chat.chat.id, parent.id if parent else None, role, text)

    def version(self, chat: OpenChat, old: MessageRecord, text: str) -> MessageRecord:
        """Return another version of a message: its sibling."""
        new = MessageRecord(self.take_ids(), chat.chat.id, old.parent_id, old.role, text, is_pinned=old.is_pinned)
        return replace(new, siblings=(*(old.siblings or (old.id,)), new.id))

    def cost_question(self, chat: OpenChat | None, text: str) -> EstimateCost:
        """Return the question of what sending a text in a chat, or in a new one, would cost."""
        chat = chat or OpenChat(self.chat_like(text), (), frozenset())
        before = chat.messages or self.opening(chat)
        prompt = prompt_of([*before, MessageRecord(0, chat.chat.id, None, "user", text)])
        n_predict, n_ctx = self._settings.n_predict, chat.chat.n_ctx
        return EstimateCost(chat.chat.id, text, prompt, n_predict, n_ctx, chat.out_ids, chat.began_at)

    def take_ids(self, n: int = 1) -> int:
        """Take n numbers that follow each other; returns the first."""
        taken = self.next_id
        self.next_id += n
        return taken
