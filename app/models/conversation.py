"""The messages of the chat that is open, from the first to the one being written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.bridge.messages import Role
from app.storage.records import MessageState


@dataclass(frozen=True, slots=True)
class MessageItem:
    """One message as the conversation shows it.

    Attributes:
        is_out: it has left the model's context.
        is_pinned: it never leaves the context.
        error: why the reply failed, a sentence; empty where it did not.
        n_tokens: tokens generated for it; 0 for what a person wrote.
        tok_s: tokens a second while it was generated.
        version: which of the n_versions of this message it is, from 1 on.
    """

    id: int
    role: Role
    text: str
    state: MessageState = "done"
    is_out: bool = False
    is_pinned: bool = False
    error: str = ""
    n_tokens: int = 0
    tok_s: float = 0.0
    version: int = 1
    n_versions: int = 1


class ConversationModel(QObject):
    """The open chat: its title and its messages in order.

    Attributes:
        chat_id: the open chat, None for a new one that has no message yet.
        title: its title, empty for a new one.

    Signals:
        reset: another chat was opened; read everything again.
        title_changed(title)
        item_inserted(index)
        item_changed(index): anything of it but appended text.
        text_appended(index, delta)
        items_removed(first, count)

    Thread: GUI thread.
    """

    reset = Signal()
    title_changed = Signal(str)
    item_inserted = Signal(int)
    item_changed = Signal(int)
    text_appended = Signal(int, str)
    items_removed = Signal(int, int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.chat_id: int | None = None
        self.title = ""
        self._items: list[MessageItem] = []
        self._index_of: dict[int, int] = {}

    def items(self) -> Sequence[MessageItem]:
        """Return the messages in order; read only, valid until the next signal."""
        return self._items

    def item(self, message_id: int) -> MessageItem | None:
        """Return a message by its id, None where this chat has none."""
        i = self._index_of.get(message_id)
        return None if i is None else self._items[i]

    def load(self, chat_id: int | None, title: str, items: Iterable[MessageItem]) -> None:
        """Show another chat."""
        self.chat_id = chat_id
        self.title = title
        self._items = list(items)
        self._index_of = {item.id: i for i, item in enumerate(self._items)}
        self.reset.emit()

    def name(self, chat_id: int, title: str) -> None:
        """Give the open chat its id (at its first message) or another title."""
        self.chat_id = chat_id
        if title != self.title:
            self.title = title
            self.title_changed.emit(title)

    def append(self, item: MessageItem) -> None:
        """Add a message at the end."""
        self._index_of[item.id] = len(self._items)
        self._items.append(item)
        self.item_inserted.emit(len(self._items) - 1)

    def put(self, item: MessageItem) -> None:
        """Change the message with this id; without effect where the chat has none or nothing differs."""
        i = self._index_of.get(item.id)
        if i is not None and self._items[i] != item:
            self._items[i] = item
            self.item_changed.emit(i)

    def append_text(self, message_id: int, delta: str) -> None:
        """Add text to the end of a message."""
        i = self._index_of.get(message_id)
        if i is not None and delta:
            self._items[i] = replace(self._items[i], text=self._items[i].text + delta)
            self.text_appended.emit(i, delta)

    def mark_out(self, out_ids: frozenset[int]) -> None:
        """Mark exactly these messages as having left the context."""
        for i, item in enumerate(self._items):
            if item.is_out != (item.id in out_ids):
                self._items[i] = replace(item, is_out=not item.is_out)
                self.item_changed.emit(i)

    def remove_from(self, first: int) -> None:
        """Take out the message at `first` and all after it."""
        gone = self._items[first:]
        if gone:
            del self._items[first:]
            for item in gone:
                del self._index_of[item.id]
            self.items_removed.emit(first, len(gone))
