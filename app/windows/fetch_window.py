"""The window that gets models from a hub: look for one, choose a file, fetch it, pause, go on."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QLocale, Qt
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.bridge.fetch_client import FetchClient, FetchState
from app.fetch.hub import HubChoice, HubModel
from app.models import ModelCatalogue
from app.theme import GRID
from app.windows.remote_dialog import RemoteDialog

_DATA = Qt.ItemDataRole.UserRole
_STEPS = 1000
_BESIDE_WEIGHTS = 1.2
"""Memory that a model takes against its file, with a context of usual length."""


class FetchWindow(QDialog):
    """Shows what a hub has and fetches it into a folder. Asks the network only when a button is pressed.

    Thread: GUI thread.
    """

    def __init__(self, client: FetchClient, catalogue: ModelCatalogue, folder: Path, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setObjectName("fetch_window")
        self.setWindowTitle(self.tr("Get models"))
        self._client, self._catalogue, self._folder = client, catalogue, folder
        self._is_running = False
        self._remote_dialog: RemoteDialog | None = None
        self._search_edit = QLineEdit(self)
        self._search_edit.setPlaceholderText(self.tr("Part of a model's name"))
        self._search_edit.setAccessibleName(self.tr("Part of a model's name"))
        self._search_button = QPushButton(self.tr("Search"), self)
        self._search_button.setDefault(True)
        self._models_list = QListWidget(self)
        self._models_list.setAccessibleName(self.tr("Models"))
        self._files_tree = QTreeWidget(self)
        self._files_tree.setAccessibleName(self.tr("Files"))
        self._files_tree.setRootIsDecorated(False)
        self._files_tree.setHeaderLabels([self.tr("File"), self.tr("Quantisation"), self.tr("Size"), self.tr("Memory")])
        self._files_tree.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self._status_label = QLabel(self)
        self._status_label.setWordWrap(True)
        self._status_label.setTextFormat(Qt.TextFormat.PlainText)
        self._progress_bar = QProgressBar(self)
        self._progress_bar.setRange(0, _STEPS)
        self._progress_bar.setAccessibleName(self.tr("Share fetched"))
        self._progress_bar.hide()
        self._remote_button = QPushButton(self.tr("Add a remote model…"), self)
        self._fetch_button = QPushButton(self.tr("Fetch"), self)
        self._close_button = QPushButton(self.tr("Close"), self)
        for button in (self._remote_button, self._fetch_button, self._close_button):
            button.setAutoDefault(False)
        self._arrange()
        self._connect()
        text = self.tr("Search asks {endpoint}. Files go to {folder}.")
        self._status_label.setText(text.format(endpoint=client.endpoint, folder=folder))
        self._show_buttons()

    def _arrange(self) -> None:
        search = QHBoxLayout()
        search.addWidget(self._search_edit, 1)
        search.addWidget(self._search_button)
        lists = QHBoxLayout()
        lists.addWidget(self._models_list, 1)
        lists.addWidget(self._files_tree, 2)
        buttons = QHBoxLayout()
        buttons.setSpacing(GRID)
        buttons.addWidget(self._remote_button)
        buttons.addWidget(self._progress_bar, 1)
        buttons.addStretch()
        buttons.addWidget(self._fetch_button)
        buttons.addWidget(self._close_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.addLayout(search)
        column.addLayout(lists, 1)
        column.addWidget(self._status_label)
        column.addLayout(buttons)
        self.resize(960, 560)

    def _connect(self) -> None:
        self._search_button.clicked.connect(self._on_search_clicked)
        self._models_list.currentItemChanged.connect(self._on_model_chosen)
        self._files_tree.itemSelectionChanged.connect(self._show_buttons)
        self._fetch_button.clicked.connect(self._on_fetch_clicked)
        self._remote_button.clicked.connect(self._on_remote_clicked)
        self._close_button.clicked.connect(self.close)
        self._client.searched.connect(self._on_searched)
        self._client.listed.connect(self._on_listed)
        self._client.failed.connect(self._on_failed)
        self._client.changed.connect(self._on_changed)

    def _choice(self) -> HubChoice | None:
        items = self._files_tree.selectedItems()
        choice = items[0].data(0, _DATA) if items else None
        return choice if isinstance(choice, HubChoice) else None

    def _show_buttons(self) -> None:
        self._fetch_button.setText(self.tr("Pause") if self._is_running else self.tr("Fetch"))
        self._fetch_button.setEnabled(self._is_running or self._choice() is not None)

    def _on_search_clicked(self) -> None:
        text = self._search_edit.text().strip()
        if text:
            self._status_label.setText(self.tr("Searching…"))
            self._client.search(text)

    def _on_searched(self, found: list[HubModel]) -> None:
        self._models_list.clear()
        self._files_tree.clear()
        for model in found:
            item = QListWidgetItem(model.repo, self._models_list)
            item.setData(_DATA, model.repo)
            if model.is_gated:
                item.setToolTip(self.tr("Its terms have to be accepted on the hub's page first."))
        self._status_label.setText(self.tr("%n model(s) found.", "", len(found)))

    def _on_model_chosen(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            self._files_tree.clear()
            self._client.list_files(str(item.data(_DATA)))

    def _on_listed(self, repo: str, choices: list[HubChoice]) -> None:
        item = self._models_list.currentItem()
        if item is None or item.data(_DATA) != repo:
            return
        locale, free_bytes = QLocale(), self._catalogue.free_bytes
        self._files_tree.clear()
        for choice in choices:
            size = locale.formattedDataSize(choice.size_bytes) if choice.size_bytes else ""
            fits = not free_bytes or choice.size_bytes * _BESIDE_WEIGHTS <= free_bytes
            mark = "" if not choice.size_bytes else self.tr("fits") if fits else self.tr("too large")
            row = QTreeWidgetItem(self._files_tree, [choice.name, choice.quant, size, mark])
            row.setData(0, _DATA, choice)

    def _on_failed(self, problem: str) -> None:
        self._status_label.setText(problem)

    def _on_fetch_clicked(self) -> None:
        choice = self._choice()
        if self._is_running:
            self._client.pause()
        elif choice is not None:
            self._is_running = True
            self._client.fetch(choice, self._folder)
        self._show_buttons()

    def _on_remote_clicked(self) -> None:
        dialog = RemoteDialog(self._folder, self)
        dialog.accepted.connect(self._on_remote_added)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._remote_dialog = dialog
        dialog.open()

    def _on_remote_added(self) -> None:
        dialog, self._remote_dialog = self._remote_dialog, None
        if dialog is None or dialog.path is None:
            return
        lines = [self.tr("{name} is among the models now.").format(name=dialog.path.name)]
        if not dialog.is_key_kept:
            lines.append(self.tr("There is no keyring: the key is known for this run only."))
        self._status_label.setText(" ".join(lines))
        self._catalogue.refresh()

    def _on_changed(self, state: FetchState) -> None:
        self._is_running = state.state == "running"
        self._progress_bar.setVisible(self._is_running)
        locale, names = QLocale(), {"name": state.name, "problem": state.problem}
        if state.progress is not None:
            if state.progress.n_total:
                self._progress_bar.setValue(_STEPS * state.progress.n_done // state.progress.n_total)
            left = self.tr("{name}: {rate} a second, {minutes} min left.")
            self._status_label.setText(
                left.format(
                    rate=locale.formattedDataSize(int(state.progress.bytes_s)),
                    minutes=locale.toString(round(state.progress.left_s / 60, 1)),
                    **names,
                )
            )
        elif state.state == "done":
            self._status_label.setText(self.tr("{name} is here.").format(**names))
            self._catalogue.refresh()
        elif state.state == "paused":
            self._status_label.setText(self.tr("{name} is paused; Fetch goes on with it.").format(**names))
        else:
            self._status_label.setText(self.tr("{name} was not fetched. {problem}.").format(**names))
        self._show_buttons()
