"""What stands in the composer of each chat, handed to storage a moment after the last key."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from app.models.ports import Store
from app.storage.records import SetDraft

DRAFT_MS = 400
"""A draft is kept so long after the last key."""


class Drafts(QObject):
    """The draft of the open chat, and that of a chat that has no message yet.

    Attributes:
        chat_id: the chat whose draft it is; None for one without messages.
        of_new_chat: the draft of that one.
        is_kept: the draft may be written; that of a temporary chat may not.

    Thread: GUI thread.
    """

    def __init__(self, store: Store, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.chat_id: int | None = None
        self.of_new_chat = ""
        self.is_kept = True
        self._store = store
        self._text: str | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(DRAFT_MS)
        self._timer.timeout.connect(self.keep)

    def set(self, text: str) -> None:
        """Take over the text; it is kept a moment later."""
        self._text = text
        self._timer.start()

    def keep(self) -> None:
        """Hand the text to storage where it has changed."""
        self._timer.stop()
        text, self._text = self._text, None
        if text is None or not self.is_kept:
            return
        if self.chat_id is None:
            self.of_new_chat = text
        self._store.submit(SetDraft(self.chat_id, text))

    def forget(self) -> None:
        """Note that the composer is empty."""
        self._text = ""
        self.keep()
