"""The dialog that lists the models found on this computer and lets a person choose one."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import (
    QItemSelection,
    QLocale,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QKeyEvent, QPalette, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.models import ModelCatalogue, ModelEntry
from app.models.catalogue import Column
from app.models.fit import fitting_types
from app.theme import GRID, Theme

_Index = QModelIndex | QPersistentModelIndex
_ROW_PX = 36
_WIDTHS = {
    Column.NAME: 232,
    Column.ARCH: 96,
    Column.PARAMS: 96,
    Column.QUANT: 100,
    Column.CONTEXT: 120,
    Column.SIZE: 112,
    Column.MEMORY: 136,
}
_NUMBERS = (Column.PARAMS, Column.CONTEXT, Column.SIZE, Column.MEMORY)


class PickerModel(QSortFilterProxyModel):
    """The models that hold what is searched for in any column, sorted by what the columns mean, damaged ones grey."""

    def __init__(self, catalogue: ModelCatalogue, parent: QObject) -> None:
        super().__init__(parent)
        self.setSourceModel(catalogue)
        self.setFilterKeyColumn(-1)
        self.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)

    def entry(self, index: _Index) -> ModelEntry | None:
        """Return the model of a row, None for no row."""
        entry = index.data(ModelCatalogue.EntryRole) if index.isValid() else None
        return entry if isinstance(entry, ModelEntry) else None

    def data(self, index: _Index, role: int = int(Qt.ItemDataRole.DisplayRole)) -> object:
        """Return what the catalogue says, and grey for files that cannot be used."""
        if role == int(Qt.ItemDataRole.ForegroundRole):
            entry = self.entry(index)
            return _grey() if entry is not None and entry.problem else None
        if role == int(Qt.ItemDataRole.DisplayRole) and index.column() == Column.ARCH:
            entry = self.entry(index)
            if entry is not None and entry.problem:
                return entry.problem
        value: object = super().data(index, role)
        return value

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = int(Qt.ItemDataRole.DisplayRole)
    ) -> object:
        """Return a column's title, over its numbers at the right and over its words at the left."""
        if role == int(Qt.ItemDataRole.TextAlignmentRole):
            side = Qt.AlignmentFlag.AlignRight if section in _NUMBERS else Qt.AlignmentFlag.AlignLeft
            return int(side | Qt.AlignmentFlag.AlignVCenter)
        value: object = super().headerData(section, orientation, role)
        return value

    def lessThan(self, left: _Index, right: _Index) -> bool:
        """Compare numbers as numbers; what cannot be used comes last."""
        a, b = self._entry_of(left), self._entry_of(right)
        if bool(a.problem) != bool(b.problem):
            return bool(b.problem) == (self.sortOrder() == Qt.SortOrder.AscendingOrder)
        return _sort_key(a, Column(left.column())) < _sort_key(b, Column(right.column()))

    def _entry_of(self, index: _Index) -> ModelEntry:
        catalogue = self.sourceModel()
        assert isinstance(catalogue, ModelCatalogue)
        return catalogue.entry(index.row())


class ModelPicker(QDialog):
    """Shows a `ModelCatalogue` as a table.

    Signals:
        chosen(path): load this model.
        details_wanted(path): show what its file says.
        fetch_wanted: get more models.

    Thread: GUI thread.
    """

    chosen = Signal(str)
    details_wanted = Signal(str)
    fetch_wanted = Signal()

    def __init__(self, catalogue: ModelCatalogue, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("model_picker")
        self.setWindowTitle(self.tr("Choose a model"))
        self._catalogue = catalogue
        self._theme = theme
        self._model = PickerModel(catalogue, self)
        self._marked_path: Path | None = None
        self._search_edit = QLineEdit(self)
        self._search_edit.setPlaceholderText(self.tr("Search models"))
        self._search_edit.setAccessibleName(self.tr("Search models"))
        self._search_edit.setClearButtonEnabled(True)
        self._table = self._make_table()
        self._detail_label = self._quiet_label()
        self._memory_label = self._quiet_label()
        self._open_button = QPushButton(self.tr("Open file…"), self)
        self._fetch_button = QPushButton(self.tr("Get models…"), self)
        self._fetch_button.setAutoDefault(False)
        self._details_button = QPushButton(self.tr("Details…"), self)
        self._details_button.setAutoDefault(False)
        self._cancel_button = QPushButton(self.tr("Cancel"), self)
        self._load_button = QPushButton(self.tr("Load"), self)
        self._load_button.setDefault(True)
        self._open_button.setAutoDefault(False)
        self._cancel_button.setAutoDefault(False)
        self._arrange()
        self._connect()
        self.resize(1120, 560)
        self._on_refreshed()

    def choose_file(self) -> None:
        """Ask for a file and load it."""
        path, _ = QFileDialog.getOpenFileName(
            self, self.tr("Open a model file"), "", self.tr("GGUF models (*.gguf);;All files (*)")
        )
        if path:
            self.chosen.emit(path)
            self.accept()

    def selected(self) -> ModelEntry | None:
        """Return the model that is marked in the table."""
        return self._model.entry(self._table.currentIndex())

    def showEvent(self, event: QShowEvent) -> None:
        """Look for models anew, with the keyboard in the search field."""
        super().showEvent(event)
        self._search_edit.clear()
        self._search_edit.setFocus()
        self._catalogue.refresh()
        self._on_refreshed()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move in the table while the keyboard is in the search field."""
        keys = (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp)
        if event.key() in keys and self._search_edit.hasFocus():
            QApplication.sendEvent(self._table, event)
        else:
            super().keyPressEvent(event)

    def _make_table(self) -> QTableView:
        table = QTableView(self)
        table.setObjectName("model_table")
        table.setAccessibleName(self.tr("Models"))
        table.setModel(self._model)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setShowGrid(False)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(self._theme.scaled(_ROW_PX))
        header = table.horizontalHeader()
        header.setHighlightSections(False)
        header.setStretchLastSection(True)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for column, width in _WIDTHS.items():
            table.setColumnWidth(column, self._theme.scaled(width))
        table.setSortingEnabled(True)
        table.sortByColumn(Column.NAME, Qt.SortOrder.AscendingOrder)
        return table

    def _quiet_label(self) -> QLabel:
        label = QLabel(self)
        label.setProperty("quiet", True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        return label

    def _arrange(self) -> None:
        buttons = QHBoxLayout()
        buttons.setSpacing(GRID)
        buttons.addWidget(self._open_button)
        buttons.addWidget(self._fetch_button)
        buttons.addWidget(self._details_button)
        buttons.addWidget(self._memory_label, 1)
        buttons.addWidget(self._cancel_button)
        buttons.addWidget(self._load_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(12)
        column.addWidget(self._search_edit)
        column.addWidget(self._table, 1)
        column.addWidget(self._detail_label)
        column.addLayout(buttons)
        for before, after in (
            (self._search_edit, self._table),
            (self._table, self._open_button),
            (self._open_button, self._fetch_button),
            (self._fetch_button, self._details_button),
            (self._details_button, self._cancel_button),
            (self._cancel_button, self._load_button),
        ):
            QWidget.setTabOrder(before, after)

    def _connect(self) -> None:
        self._catalogue.refreshed.connect(self._on_refreshed)
        self._model.layoutChanged.connect(self._span_problems)
        self._search_edit.textChanged.connect(self._on_search_changed)
        self._table.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self._table.doubleClicked.connect(self._on_load_clicked)
        self._open_button.clicked.connect(self.choose_file)
        self._fetch_button.clicked.connect(self.fetch_wanted)
        self._details_button.clicked.connect(self._on_details_clicked)
        self._cancel_button.clicked.connect(self.reject)
        self._load_button.clicked.connect(self._on_load_clicked)

    def _on_search_changed(self, text: str) -> None:
        self._model.setFilterFixedString(text.strip())
        self._span_problems()
        self._select_some()

    def _span_problems(self) -> None:
        """Give the sentence of a damaged file the room of all columns but the first."""
        self._table.clearSpans()
        for row in range(self._model.rowCount()):
            entry = self._model.entry(self._model.index(row, 0))
            if entry is not None and entry.problem:
                self._table.setSpan(row, Column.ARCH, 1, len(Column) - 1)

    def _on_refreshed(self) -> None:
        self._select_again()
        if self._catalogue.free_bytes:
            free = QLocale().formattedDataSize(self._catalogue.free_bytes)
            self._memory_label.setText(self.tr("Memory free: {size}").format(size=free))
        else:
            self._memory_label.clear()
        self._select_some()
        self._span_problems()

    def _select_again(self) -> None:
        """Mark the model that was marked before the list was made anew."""
        for row in range(self._model.rowCount()):
            entry = self._model.entry(self._model.index(row, 0))
            if entry is not None and entry.path == self._marked_path:
                self._table.selectRow(row)

    def _select_some(self) -> None:
        if not self._table.currentIndex().isValid() and self._model.rowCount():
            self._table.selectRow(0)
        self._show_selected()

    def _on_selection_changed(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        self._show_selected()

    def _show_selected(self) -> None:
        entry = self.selected()
        if entry is not None:
            self._marked_path = entry.path
        self._details_button.setEnabled(entry is not None)
        self._load_button.setEnabled(entry is not None and not entry.problem)
        self._detail_label.setText(self._detail(entry))

    def _detail(self, entry: ModelEntry | None) -> str:
        if entry is not None and entry.problem:
            return self.tr("{path} cannot be used: {problem}").format(path=entry.path, problem=entry.problem)
        if entry is not None:
            return "\n".join([str(entry.path), *self._judgement(entry)])
        if self._catalogue.is_refreshing:
            return self.tr("Looking for models…")
        if self._catalogue.rowCount():
            return self.tr("No model has this in its name or its other columns.")
        return self.tr("No models were found. Open a GGUF file, or put some into a folder that is searched.")

    def _judgement(self, entry: ModelEntry) -> list[str]:
        """What the model would take and give, a line each; none while nobody has looked."""
        locale, free_bytes = QLocale(), self._catalogue.free_bytes
        if not entry.need_bytes or not free_bytes:
            return []
        sizes = {"need": locale.formattedDataSize(entry.need_bytes), "free": locale.formattedDataSize(free_bytes)}
        fits = fitting_types(entry, free_bytes)
        lines = []
        if not self._is_too_large(entry):
            lines.append(self.tr("It needs {need} of memory; {free} are free.").format(**sizes))
            if fits:
                n_ctx = locale.toString(fits[0][1])
                lines.append(self.tr("A context of up to {n_ctx} tokens fits.").format(n_ctx=n_ctx))
        else:
            lines.append(self.tr("It needs more memory than is free: {need}, and {free} are.").format(**sizes))
            for type_kv, tokens in fits:
                text = self.tr("It would fit with a context of {n_ctx} tokens kept as {type_kv}.")
                lines.append(text.format(n_ctx=locale.toString(tokens), type_kv=type_kv))
            if not fits:
                lines.append(self.tr("Only a smaller model, or one that is quantised more, would fit."))
        if entry.tok_s:
            rate = locale.toString(entry.tok_s, "f", 0 if entry.tok_s >= 10 else 1)
            lines.append(self.tr("About {rate} tokens a second are to be expected.").format(rate=rate))
        return lines

    def _is_too_large(self, entry: ModelEntry) -> bool:
        return 0 < self._catalogue.free_bytes < entry.need_bytes

    def _may_load(self, entry: ModelEntry) -> bool:
        """Whether it fits, or the person wants it all the same."""
        if not self._is_too_large(entry):
            return True
        answer = QMessageBox.question(
            self,
            self.tr("Load it anyway?"),
            "\n".join([*self._judgement(entry), self.tr("Loading it may slow the computer down, or fail.")]),
            QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.No,
            QMessageBox.StandardButton.No,
        )
        return answer == QMessageBox.StandardButton.Yes

    def _on_details_clicked(self) -> None:
        entry = self.selected()
        if entry is not None:
            self.details_wanted.emit(str(entry.path))

    def _on_load_clicked(self) -> None:
        entry = self.selected()
        if entry is not None and not entry.problem and self._may_load(entry):
            self.chosen.emit(str(entry.path))
            self.accept()


def _grey() -> QColor:
    return QApplication.palette().color(QPalette.ColorGroup.Disabled, QPalette.ColorRole.Text)


def _sort_key(entry: ModelEntry, column: Column) -> tuple[float, str]:
    numbers = {
        Column.PARAMS: entry.n_params,
        Column.CONTEXT: entry.n_ctx_train,
        Column.SIZE: entry.size_bytes,
        Column.MEMORY: entry.need_bytes,
    }
    texts = {Column.ARCH: entry.arch, Column.QUANT: entry.quant, Column.NOTE: entry.problem or entry.note}
    return float(numbers.get(column, 0)), texts.get(column, entry.name).casefold()
