"""The window that shows what is in the context of the open chat: which messages, where, and the exact tokens."""

from __future__ import annotations

from PySide6.QtCore import QLocale
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.bridge.context_view import ContextRow, ContextView
from app.models import ChatController
from app.theme import GRID

_SHOWN_CHARS = 60


class Inspector(QDialog):
    """Shows the context of the open chat as it was when the window was opened, or refreshed.

    Thread: GUI thread.
    """

    def __init__(self, controller: ChatController, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("inspector")
        self.setWindowTitle(self.tr("What is in the context"))
        self._controller = controller
        self._head_label = QLabel(self)
        self._head_label.setWordWrap(True)
        self._table = QTableWidget(0, 4, self)
        self._table.setAccessibleName(self.tr("Messages"))
        self._table.setHorizontalHeaderLabels(
            [self.tr("Message"), self.tr("Where"), self.tr("Positions"), self.tr("Tokens")]
        )
        self._table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self._table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self._table.verticalHeader().hide()
        self._table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self._text_edit = QPlainTextEdit(self)
        self._text_edit.setReadOnly(True)
        self._text_edit.setAccessibleName(self.tr("The tokens as text"))
        self._copy_button = QPushButton(self.tr("Copy"), self)
        self._refresh_button = QPushButton(self.tr("Look again"), self)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self._refresh_button)
        buttons.addWidget(self._copy_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addWidget(self._head_label)
        column.addWidget(self._table, 2)
        column.addWidget(self._text_edit, 1)
        column.addLayout(buttons)
        controller.rules.inspected.connect(self._on_inspected)
        self._copy_button.clicked.connect(self._on_copy_clicked)
        self._refresh_button.clicked.connect(controller.rules.inspect)
        self.resize(680, 560)
        controller.rules.inspect()

    def _on_inspected(self, view: ContextView) -> None:
        number, size = QLocale().toString, QLocale().formattedDataSize
        if view.n_ctx:
            head = self.tr("{used} of {all} tokens, keys and values in {kv}").format(
                used=number(view.n_used), all=number(view.n_ctx), kv=view.kv_type
            )
        else:
            head = self.tr("This chat is not in memory")
        file = self.tr("its file has {n}").format(n=size(view.file_bytes)) if view.file_bytes else self.tr("no file")
        self._head_label.setText(f"{head}; {file}.")
        rows = {row.message_id: row for row in view.rows}
        items = self._controller.conversation.items()
        self._table.setRowCount(len(items))
        for i, item in enumerate(items):
            text = " ".join(item.text.split())[:_SHOWN_CHARS]
            cells = (f"{item.role}: {text}", *self._place(rows.get(item.id)))
            for j, cell in enumerate(cells):
                self._table.setItem(i, j, QTableWidgetItem(cell))
        self._text_edit.setPlainText(view.text)

    def _place(self, row: ContextRow | None) -> tuple[str, str, str]:
        if row is None:
            return self.tr("not computed yet"), "", ""
        if row.is_out:
            return self.tr("has left"), "", ""
        positions = f"{row.pos}\N{EN DASH}{row.pos + row.n_tokens - 1}" if row.n_tokens else ""
        return self.tr("in the context"), positions, QLocale().toString(row.n_tokens)

    def _on_copy_clicked(self) -> None:
        QGuiApplication.clipboard().setText(self._text_edit.toPlainText())
