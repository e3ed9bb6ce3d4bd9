"""What the actions of the window call: new chat, send, stop and the rest; nothing here waits."""

from __future__ import annotations

import time
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.models.catalogue import ModelCatalogue
from app.models.chat_list import ChatListModel, ChatRow
from app.models.conversation import ConversationModel, MessageItem
from app.models.generation import GenerationState, Phase


class ChatController(QObject):
    """Turns what a person does into changes of the state objects.

    Attributes:
        chats: the list of chats.
        conversation: the open chat.
        generation: what the model does for the open chat.
        catalogue: the models that were found.

    Signals:
        chat_opened(chat_id): another chat is shown; -1 for a new one without messages.
        draft_restored(text): the composer should hold this text now.
        notice(sentence): something a person should know, not tied to a message.

    Thread: GUI thread.
    """

    chat_opened = Signal(int)
    draft_restored = Signal(str)
    notice = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.chats = ChatListModel(self)
        self.conversation = ConversationModel(self)
        self.generation = GenerationState(self)
        self.catalogue = ModelCatalogue(self)
        self._next_id = 1
        self._chats: dict[int, list[MessageItem]] = {}
        self._bin: list[ChatRow] = []

    def new_chat(self) -> None:
        """Show an empty chat; it is kept from its first message on."""
        self.conversation.load(None, "", ())
        self.chat_opened.emit(-1)

    def open_chat(self, chat_id: int) -> None:
        """Show a chat."""
        row = self.chats.chat(chat_id)
        if row is not None:
            self.conversation.load(chat_id, row.title, self._chats.get(chat_id, ()))
            self.chat_opened.emit(chat_id)

    def send(self, text: str) -> None:
        """Add a person's message to the open chat and ask for a reply."""
        if self.conversation.chat_id is None:
            chat_id = self._take_id()
            self.chats.put(ChatRow(chat_id, text[:40], time.time()))
            self.conversation.name(chat_id, text[:40])
        self.conversation.append(MessageItem(self._take_id(), "user", text))

    def stop(self) -> None:
        """Stop the reply of the open chat."""
        self.generation.set(replace(self.generation.values, phase=Phase.IDLE))

    def regenerate(self) -> None:
        """Make the last reply of the open chat anew."""

    def delete_chat(self, chat_id: int) -> None:
        """Move a chat to the bin; `undo_delete` brings it back."""
        row = self.chats.remove(chat_id)
        if row is not None:
            self._bin.append(row)

    def undo_delete(self) -> None:
        """Bring back the chat deleted last."""
        if self._bin:
            self.chats.put(self._bin.pop())

    def rename_chat(self, chat_id: int, title: str) -> None:
        """Give a chat another title."""
        row = self.chats.chat(chat_id)
        if row is not None and title.strip():
            self.chats.put(replace(row, title=title.strip()))

    def set_draft(self, text: str) -> None:
        """Keep what stands in the composer of the open chat."""

    def load_model(self, path: str) -> None:
        """Load a model in the background."""

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id
