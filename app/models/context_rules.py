"""Which messages stay in the context of the open chat, and what happens when it is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.bridge.messages import Overflow
from app.models.conversation import ConversationModel
from app.models.open_chat import OpenChat, message_item
from app.models.ports import Engine, Store
from app.models.record_maker import RecordMaker
from app.models.summaries import is_summary
from app.settings import Settings
from app.storage.records import AddMessages, PinMessage, SetOverflow


class ContextRules(QObject):
    """A person's say over what leaves the context.

    Signals:
        inspected(ContextView): what is in the context of the open chat, as `inspect` asked.
        changed: the rule of the open chat, or of new ones, is another.

    Thread: GUI thread.
    """

    inspected = Signal(object)
    changed = Signal()

    def __init__(
        self,
        engine: Engine,
        store: Store,
        settings: Settings,
        conversation: ConversationModel,
        make: RecordMaker,
        open_chat: Callable[[], OpenChat | None],
        parent: QObject,
    ) -> None:
        """Rule the chat that `open_chat` returns."""
        super().__init__(parent)
        self._engine, self._store, self._settings = engine, store, settings
        self._conversation, self._make, self._open_chat = conversation, make, open_chat

    @property
    def overflow(self) -> Overflow:
        """What happens when the context of the open chat is full."""
        chat = self._open_chat()
        return chat.chat.overflow if chat is not None else self._settings.overflow_policy()

    def set_overflow(self, overflow: Overflow) -> None:
        """Choose what happens when the context of the open chat is full, and of those to come."""
        self._settings.overflow = overflow
        chat = self._open_chat()
        if chat is not None:
            chat.chat = replace(chat.chat, overflow=overflow)
            self._store.submit(SetOverflow(chat.chat.id, overflow))
        self.changed.emit()

    def inspect(self) -> None:
        """Ask what is in the context of the open chat; `inspected` follows."""
        if self._conversation.chat_id is not None:
            self._engine.inspect(self._conversation.chat_id)

    def pin_message(self, message_id: int, is_pinned: bool) -> None:
        """Let a message never leave the context, or let it leave again."""
        chat = self._open_chat()
        old = chat.message(message_id) if chat is not None else None
        if chat is not None and old is not None:
            new = replace(old, is_pinned=is_pinned)
            chat.put(new)
            self._conversation.put(message_item(new, message_id in chat.out_ids))
            self._store.submit(PinMessage(message_id, is_pinned))

    def add_summary(self, chat_id: int, leaf_id: int, text: str) -> bool:
        """Put a summary of what left behind a message, pinned; the one before may leave.

        Returns: False where another chat is open, or this one has gone on: it gets none then.
        """
        chat = self._open_chat()
        if chat is None or chat.leaf is None or (chat.chat.id, chat.leaf.id) != (chat_id, leaf_id):
            return False
        for old in [m for m in chat.messages if is_summary(m)]:
            self.pin_message(old.id, False)
        new = replace(self._make.message(chat, chat.leaf, "user", text), is_pinned=True)
        chat.messages.append(new)
        chat.chat = replace(chat.chat, leaf_id=new.id)
        self._conversation.append(message_item(new, is_out=False))
        if not chat.is_temporary:
            self._store.submit(AddMessages(chat.chat, (new,)))
        return True

    def bring_back(self, message_id: int) -> None:
        """Let a message that left the context, and what it belongs to, be in it from the next reply on."""
        chat = self._open_chat()
        if chat is not None and message_id in chat.out_ids:
            chat.out_ids -= chat.exchange_of(message_id)
            self._conversation.mark_out(chat.out_ids)
