"""The window of one model: what its file says of itself, its template, and whether the file is whole."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QTabWidget,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.bridge.messages import DetailRow, ModelDetails, ModelVerified
from app.models import ModelCatalogue
from app.theme import GRID


class ModelDetailsWindow(QDialog):
    """Asks the catalogue for the details of a model and shows them.

    Thread: GUI thread.
    """

    def __init__(self, catalogue: ModelCatalogue, path: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("model_details")
        self.setWindowTitle(self.tr("Details of a model"))
        self._catalogue, self._path = catalogue, path
        self._path_label = QLabel(path, self)
        self._path_label.setWordWrap(True)
        self._status_label = QLabel(self.tr("Reading…"), self)
        self._status_label.setProperty("quiet", True)
        self._status_label.setWordWrap(True)
        self._about_tree = self._tree(self.tr("About the model"))
        self._metadata_tree = self._tree(self.tr("Metadata"))
        self._template_edit = self._text(self.tr("Chat template"))
        self._sample_edit = self._text(self.tr("What the template makes of a short conversation"))
        self._verify_button = QPushButton(self.tr("Verify"), self)
        self._close_button = QPushButton(self.tr("Close"), self)
        self._arrange()
        self._verify_button.clicked.connect(self._on_verify_clicked)
        self._close_button.clicked.connect(self.accept)
        catalogue.details_read.connect(self._on_details_read)
        catalogue.verify_progressed.connect(self._on_verify_progressed)
        catalogue.verified.connect(self._on_verified)
        catalogue.details_requested.emit(path)

    def _tree(self, name: str) -> QTreeWidget:
        tree = QTreeWidget(self)
        tree.setColumnCount(2)
        tree.setHeaderLabels([self.tr("What"), self.tr("Value")])
        tree.setAccessibleName(name)
        tree.setRootIsDecorated(False)
        tree.header().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        return tree

    def _text(self, name: str) -> QPlainTextEdit:
        edit = QPlainTextEdit(self)
        edit.setReadOnly(True)
        edit.setAccessibleName(name)
        edit.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        return edit

    def _arrange(self) -> None:
        tabs = QTabWidget(self)
        tabs.addTab(self._about_tree, self.tr("About"))
        tabs.addTab(self._metadata_tree, self.tr("Metadata"))
        tabs.addTab(self._template_edit, self.tr("Template"))
        tabs.addTab(self._sample_edit, self.tr("Sample"))
        buttons = QHBoxLayout()
        buttons.setSpacing(GRID)
        buttons.addWidget(self._status_label, 1)
        buttons.addWidget(self._verify_button)
        buttons.addWidget(self._close_button)
        column = QVBoxLayout(self)
        column.addWidget(self._path_label)
        column.addWidget(tabs, 1)
        column.addLayout(buttons)
        self.resize(720, 560)

    def _fill(self, tree: QTreeWidget, groups: Iterable[tuple[str, tuple[DetailRow, ...]]]) -> None:
        tree.clear()
        for title, rows in groups:
            if title and rows:
                heading = QTreeWidgetItem(tree, [title])
                heading.setFirstColumnSpanned(True)
            for row in rows:
                item = QTreeWidgetItem(tree, [row.name, row.value])
                item.setToolTip(1, row.value)

    def _on_details_read(self, details: ModelDetails) -> None:
        if str(details.path) != self._path:
            return
        self._fill(
            self._about_tree,
            (
                ("", details.about),
                (self.tr("Recommended sampling"), details.sampling),
                (self.tr("Tensors and bytes by type"), details.tensors),
            ),
        )
        self._fill(self._metadata_tree, (("", details.metadata),))
        self._template_edit.setPlainText(details.template)
        self._sample_edit.setPlainText(details.sample)
        self._status_label.setText(details.problem)

    def _on_verify_clicked(self) -> None:
        self._verify_button.setEnabled(False)
        self._catalogue.verify_requested.emit(self._path)

    def _on_verify_progressed(self, path: str, share: float) -> None:
        if path == self._path:
            self._status_label.setText(self.tr("Reading the file: {percent} %").format(percent=round(100 * share)))

    def _on_verified(self, result: ModelVerified) -> None:
        if str(result.path) != self._path:
            return
        self._verify_button.setEnabled(True)
        hashes = {"sha256": result.sha256, "source": result.source_sha256}
        if result.problem:
            text = self.tr("The file could not be read: {problem}").format(problem=result.problem)
        elif not result.source_sha256:
            text = self.tr("SHA-256 {sha256}. Its source kept no hash to compare with.").format(**hashes)
        elif result.is_same:
            text = self.tr("The file is what its source says: SHA-256 {sha256}.").format(**hashes)
        else:
            text = self.tr("The file is damaged: its SHA-256 is {sha256}, and {source} was expected.").format(**hashes)
        self._status_label.setText(text)
