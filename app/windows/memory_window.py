"""The window of what chats remember: their session files, and how much memory and disk they may take."""

from __future__ import annotations

from PySide6.QtCore import QLocale
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QDialog,
    QFormLayout,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QSpinBox,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.models import ChatController
from app.settings import Settings
from app.theme import GRID

_MB_STEP = 256


class MemoryWindow(QDialog):
    """Lists the session files with size and last use, and lets a person keep or wipe them.

    Thread: GUI thread.
    """

    def __init__(self, controller: ChatController, settings: Settings, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("memory_window")
        self.setWindowTitle(self.tr("Memory of chats"))
        self._settings = settings
        self._files = controller.session_files
        self._total_label = QLabel(self)
        self._total_label.setProperty("quiet", True)
        self._table = QTableView(self)
        self._table.setObjectName("session_table")
        self._table.setAccessibleName(self.tr("Session files"))
        self._table.setModel(self._files)
        self._table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self._table.verticalHeader().hide()
        self._table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self._wipe_button = QPushButton(self.tr("Wipe"), self)
        self._wipe_all_button = QPushButton(self.tr("Wipe all"), self)
        self._memory_spin = self._spin_box(settings.kv_budget_mb, self.tr("Half of what is free"))
        self._memory_spin.setAccessibleName(self.tr("Memory for all chats"))
        self._disk_spin = self._spin_box(settings.disk_budget_mb, self.tr("10 GB, or a tenth of what is free"))
        self._disk_spin.setAccessibleName(self.tr("Disk for session files"))
        self._packed_check = QCheckBox(self.tr("Half the size, in 8 bits: replies may differ a little"), self)
        self._packed_check.setChecked(settings.is_kv_packed)
        self._arrange()
        self._wipe_button.clicked.connect(self._on_wipe_clicked)
        self._wipe_all_button.clicked.connect(self._on_wipe_all_clicked)
        self._memory_spin.valueChanged.connect(self._on_memory_changed)
        self._disk_spin.valueChanged.connect(self._on_disk_changed)
        self._packed_check.toggled.connect(self._on_packed_toggled)
        self._table.selectionModel().selectionChanged.connect(self._update)
        self._files.listed.connect(self._update)
        self._files.refresh()
        self._update()
        self.resize(640, 480)

    def _spin_box(self, value_mb: int, default_text: str) -> QSpinBox:
        box = QSpinBox(self)
        box.setRange(0, 1 << 24)
        box.setSingleStep(_MB_STEP)
        box.setSuffix(self.tr(" MB"))
        box.setSpecialValueText(default_text)
        box.setValue(value_mb)
        return box

    def _arrange(self) -> None:
        text = self.tr(
            "A session file lets a chat go on without computing what it has read again. Its text is kept elsewhere."
        )
        about = QLabel(text, self)
        about.setWordWrap(True)
        buttons = QHBoxLayout()
        buttons.addWidget(self._total_label, 1)
        buttons.addWidget(self._wipe_button)
        buttons.addWidget(self._wipe_all_button)
        form = QFormLayout()
        form.addRow(self.tr("Memory for all chats, from the next model on"), self._memory_spin)
        form.addRow(self.tr("Disk for session files"), self._disk_spin)
        form.addRow(self.tr("On the disk, from the next model on"), self._packed_check)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addWidget(about)
        column.addWidget(self._table, 1)
        column.addLayout(buttons)
        column.addLayout(form)

    def _rows(self) -> list[int]:
        return [index.row() for index in self._table.selectionModel().selectedRows()]

    def _update(self) -> None:
        size = QLocale().formattedDataSize
        files = self._files
        self._total_label.setText(
            self.tr("{taken} of {budget}; {free} of the disk are free").format(
                taken=size(files.taken_bytes), budget=size(files.budget_bytes), free=size(files.free_bytes)
            )
        )
        self._wipe_button.setEnabled(bool(self._rows()))
        self._wipe_all_button.setEnabled(files.rowCount() > 0)

    def _on_wipe_clicked(self) -> None:
        self._files.wipe(self._rows())

    def _on_wipe_all_clicked(self) -> None:
        self._files.wipe(list(range(self._files.rowCount())))

    def _on_memory_changed(self, value: int) -> None:
        self._settings.kv_budget_mb = value

    def _on_disk_changed(self, value: int) -> None:
        self._settings.disk_budget_mb = value
        self._files.set_budget(value)
        self._files.refresh()

    def _on_packed_toggled(self, is_on: bool) -> None:
        self._settings.is_kv_packed = is_on
