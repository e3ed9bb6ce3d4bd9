"""The window that lists every action with its keys, made from the table of actions."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QGridLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.actions import ACTIONS, Menu, translated
from app.theme import GRID


class ShortcutHelp(QDialog):
    """Lists the actions by menu."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("shortcut_help")
        self.setWindowTitle(self.tr("Keyboard shortcuts"))
        page = QWidget(self)
        grid = QGridLayout(page)
        grid.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        grid.setHorizontalSpacing(4 * GRID)
        grid.setVerticalSpacing(GRID)
        grid.setColumnStretch(0, 1)
        row = 0
        for menu in Menu:
            heading = QLabel(translated(menu.value).replace("&", ""), page)
            heading.setProperty("quiet", True)
            heading.setContentsMargins(0, GRID, 0, 0)
            grid.addWidget(heading, row, 0)
            row += 1
            for text, keys in self._rows(menu):
                grid.addWidget(QLabel(text, page), row, 0)
                grid.addWidget(QLabel(keys, page), row, 1, Qt.AlignmentFlag.AlignRight)
                row += 1
        area = QScrollArea(self)
        area.setWidget(page)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setAccessibleName(self.windowTitle())
        close_button = QPushButton(self.tr("Close"), self)
        close_button.clicked.connect(self.accept)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, GRID, 0, 2 * GRID)
        column.addWidget(area, 1)
        column.addWidget(close_button, 0, Qt.AlignmentFlag.AlignHCenter)
        self.resize(480, 640)

    def _rows(self, menu: Menu) -> list[tuple[str, str]]:
        rows = [
            (
                translated(spec.text),
                self.tr(" or ").join(
                    QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText) for key in spec.keys
                ),
            )
            for spec in ACTIONS
            if spec.menu == menu and spec.keys
        ]
        if menu == Menu.REPLY:
            rows.insert(0, (self.tr("Send"), self.tr("Enter")))
            rows.insert(1, (self.tr("New line"), self.tr("Shift+Enter")))
        return rows
