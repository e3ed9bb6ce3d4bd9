"""What a person does with files of chats: export, import, print."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtWidgets import QDialog, QFileDialog, QWidget

from app.exchange.cards import CARD_SUFFIXES
from app.exchange.writing import SUFFIXES, document_of
from app.models import ChatController
from app.models.exchange import PRINTER
from app.storage.records import ChatTree
from app.widgets.notice_bar import NoticeBar

_UNSAFE = '<>:"/\\|?*'
MAX_NAME_CHARS = 80
MAX_FAILURES = 3
REPORT = "files"
"""Key of the notice that says what became of files; it outlasts the opening of the chat that came in."""


class ChatFiles(QObject):
    """Asks for files and says what became of them.

    Thread: GUI thread.
    """

    def __init__(self, controller: ChatController, notice: NoticeBar, window: QWidget) -> None:
        super().__init__(window)
        self._controller, self._notice, self._window = controller, notice, window
        self._n_taken = 0
        self._failures: list[str] = []
        controller.exchange.print_wanted.connect(self._on_print_wanted)
        controller.exchange.taken_in.connect(self._on_taken_in)

    def export_chat(self) -> None:
        """Write the open chat to a file."""
        chat_id = self._controller.conversation.chat_id
        if chat_id is not None:
            self._export_pages((chat_id,), self._controller.conversation.title)

    def export_all(self) -> None:
        """Write all chats to a file."""
        self._export_pages((), self.tr("All chats"))

    def export_character(self) -> None:
        """Write the character that the open chat was begun with to a file."""
        chat_id = self._controller.conversation.chat_id
        if chat_id is not None:
            names = (self.tr("Picture with the character"), self.tr("JSON"), self.tr("Character archive"))
            self._export((chat_id,), self._controller.conversation.title, names, CARD_SUFFIXES)

    def import_chats(self) -> None:
        """Take in chats from files of this or another program."""
        self._n_taken, self._failures = 0, []
        kinds = self.tr("Chats and characters (*.json *.jsonl *.zip *.chat *.png *.charx);;All files (*)")
        paths, _ = QFileDialog.getOpenFileNames(self._window, self.tr("Import chats"), "", kinds)
        for path in paths:
            self._controller.exchange.read_wanted.emit(path)

    def print_chat(self) -> None:
        """Print the open chat."""
        chat_id = self._controller.conversation.chat_id
        if chat_id is not None:
            self._controller.exchange.send_out((chat_id,), PRINTER)

    def on_written(self, path: str) -> None:
        """Say that a file is there."""
        self._notice.show_notice(self.tr("Exported to {path}").format(path=path))

    def on_failed(self, path: str, sentence: str) -> None:
        """Say what is wrong with a file."""
        self._failures.append(f"{Path(path).name}: {sentence}")
        self._report()

    def _export_pages(self, chat_ids: tuple[int, ...], title: str) -> None:
        names = (self.tr("Markdown"), self.tr("Web page"), self.tr("PDF"), self.tr("Causerie, with all branches"))
        self._export(chat_ids, title, names, SUFFIXES)

    def _export(self, chat_ids: tuple[int, ...], title: str, names: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
        self._n_taken, self._failures = 0, []
        filters = [f"{name} (*{suffix})" for name, suffix in zip(names, suffixes, strict=True)]
        start = file_name(title) + suffixes[0]
        path, chosen = QFileDialog.getSaveFileName(
            self._window, self.tr("Export"), start, ";;".join(filters), filters[0]
        )
        if path:
            suffix = suffixes[filters.index(chosen)] if chosen in filters else suffixes[0]
            if Path(path).suffix.lower() not in suffixes:
                path += suffix
            self._controller.exchange.send_out(chat_ids, path)

    def _on_taken_in(self, chat_ids: tuple[int, ...]) -> None:
        is_first = self._n_taken == 0
        self._n_taken += len(chat_ids)
        self._report()
        if is_first:
            self._controller.open_chat(chat_ids[0])

    def _report(self) -> None:
        """Say in one notice what became of all files, for each new one hides the one before."""
        taken = [self.tr("%n chat(s) imported.", "", self._n_taken)] if self._n_taken else []
        text = "\n".join(taken + self._failures[-MAX_FAILURES:])
        self._notice.show_notice(text, key=REPORT, stays=bool(self._failures))

    def _on_print_wanted(self, trees: tuple[ChatTree, ...]) -> None:
        printer = QPrinter(QPrinter.PrinterMode.HighResolution)
        dialog = QPrintDialog(printer, self._window)
        if trees and dialog.exec() == QDialog.DialogCode.Accepted:
            document_of(trees).print_(printer)


def file_name(title: str) -> str:
    """Return a title as the name of a file that every system takes."""
    name = "".join("_" if c in _UNSAFE or not c.isprintable() else c for c in title).strip(" .")
    return name[:MAX_NAME_CHARS] or "chat"
