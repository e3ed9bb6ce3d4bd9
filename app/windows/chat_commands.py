"""What a person does with chats and single messages: send, edit, fork, delete and undo, step between versions.

Between the conversation, the composer and the notice bar on the one side and the controller on the other.
"""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.models import ChatController
from app.widgets.composer import Composer
from app.widgets.conversation import ConversationView
from app.widgets.notice_bar import NoticeBar

UNDO = "undo-delete"
"""Key of the notice that offers to bring back what was deleted."""

_CANCEL_EDIT = "cancel-edit"
_EMPTY_BIN = "empty-bin"
_LET_LEAVE = "let-leave"


class ChatCommands(QObject):
    """Carries out the actions of chats and messages.

    Thread: GUI thread.
    """

    def __init__(
        self, controller: ChatController, view: ConversationView, composer: Composer, notice: NoticeBar, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._controller, self._view, self._composer, self._notice = controller, view, composer, notice
        self._edited_id: int | None = None
        view.version_requested.connect(controller.step_version)
        view.edit_requested.connect(self.edit)
        view.regenerate_requested.connect(controller.regenerate_reply)
        view.fork_requested.connect(controller.fork)
        view.delete_requested.connect(self._on_delete_requested)
        view.pin_requested.connect(controller.rules.pin_message)
        view.return_requested.connect(controller.rules.bring_back)
        controller.overflow_asked.connect(self._on_overflow_asked)
        composer.recall_requested.connect(self._on_recall_requested)
        notice.accepted.connect(self._on_notice_accepted)
        controller.chat_opened.connect(self._on_chat_opened)

    def submit(self, text: str) -> None:
        """Send what was written: a new message, or another version of the one that is edited."""
        edited_id, self._edited_id = self._edited_id, None
        self._composer.clear()
        if edited_id is None:
            self._controller.send(text)
        else:
            self._notice.hide()
            self._controller.edit(edited_id, text)

    def edit(self, message_id: int) -> None:
        """Put a message into the composer; sending makes another version of it."""
        item = self._controller.conversation.item(message_id)
        if item is None:
            return
        self._edited_id = message_id
        self._composer.set_text(item.text)
        self._composer.setFocus()
        self._notice.show_notice(
            self.tr("You write another version of this message: the one before stays beside it."),
            self.tr("Leave it as it is"),
            _CANCEL_EDIT,
            stays=True,
        )

    def previous_version(self) -> None:
        """Show the version before of the message that the pointer or the keyboard is on, else of the last with some."""
        self._step_version(-1)

    def next_version(self) -> None:
        """Show the next version of it."""
        self._step_version(1)

    def delete_chat(self, chat_id: int) -> None:
        """Delete a chat; a notice offers to bring it back."""
        row = self._controller.chats.chat(chat_id)
        self._controller.delete_chat(chat_id)
        self._offer_undo(self.tr("Deleted: {title}").format(title=row.title if row else ""))

    def undo_delete(self) -> None:
        """Bring back what was deleted last."""
        self._controller.bin.undo()
        self._notice.hide()

    def empty_bin(self) -> None:
        """Ask whether what was deleted should go for good."""
        text = self.tr("What is in the bin goes for good and cannot be brought back.")
        self._notice.show_notice(text, self.tr("Empty the bin"), _EMPTY_BIN, stays=True)
        self._notice.focus_button()

    def replay(self) -> None:
        """Make a reply again as it was made: the one that the pointer or the keyboard is on, else the last."""
        items = self._controller.conversation.items()
        item = self._view.acted_on()
        if item is None or item.role != "assistant":
            item = next((item for item in reversed(items) if item.role == "assistant"), None)
        if item is not None:
            self._controller.replay(item.id)

    def let_oldest_leave(self) -> None:
        """Have the oldest messages leave a full context."""
        self._controller.rules.set_overflow("shift")

    def stop_when_full(self) -> None:
        """Have a reply end where the context is full, and ask."""
        self._controller.rules.set_overflow("stop")

    def summarise_when_full(self) -> None:
        """Have the oldest messages leave a full context, and the model sum them up."""
        self._controller.rules.set_overflow("summarise")

    def _on_overflow_asked(self) -> None:
        text = self.tr("The context is full. The oldest messages can leave it; pinned ones and the system prompt stay.")
        self._notice.show_notice(text, self.tr("Let them leave"), _LET_LEAVE, stays=True)

    def _step_version(self, step: int) -> None:
        items = self._controller.conversation.items()
        item = self._view.acted_on() or next((item for item in reversed(items) if item.n_versions > 1), None)
        if item is not None:
            self._controller.step_version(item.id, step)

    def _offer_undo(self, text: str) -> None:
        self._notice.show_notice(text, self.tr("Bring it back"), UNDO)

    def _on_recall_requested(self) -> None:
        items = self._controller.conversation.items()
        own = next((item for item in reversed(items) if item.role == "user"), None)
        if own is not None:
            self.edit(own.id)

    def _on_delete_requested(self, message_id: int) -> None:
        self._controller.delete_message(message_id)
        self._offer_undo(self.tr("Deleted: this message and all that followed it."))

    def _on_notice_accepted(self, key: str) -> None:
        if key == UNDO:
            self.undo_delete()
            return
        if key == _EMPTY_BIN:
            self._controller.bin.empty()
        elif key == _LET_LEAVE:
            self._controller.let_leave()
        elif key == _CANCEL_EDIT:
            self._edited_id = None
            self._composer.clear()
        self._composer.setFocus()

    def _on_chat_opened(self, chat_id: int) -> None:
        self._edited_id = None
