"""The list of chats at the left: one line each, by day, with a small mark for what happens in it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from enum import Enum, auto

from PySide6.QtCore import (
    QAbstractItemModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QRectF,
    QSize,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QContextMenuEvent, QFontMetrics, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import (
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.icons import paint_icon
from app.models import ChatListModel
from app.theme import GRID, Theme

_Index = QModelIndex | QPersistentModelIndex
_ROW_PX, _DAY_PX = 36, 32
_RADIUS = 8


class Day(Enum):
    """The groups of the list."""

    TODAY = auto()
    YESTERDAY = auto()
    WEEK = auto()
    MONTH = auto()
    OLDER = auto()


def day_starts(today: date) -> tuple[tuple[float, Day], ...]:
    """Return when each group but the last begins, in seconds since the epoch, newest first."""
    ages = ((0, Day.TODAY), (1, Day.YESTERDAY), (6, Day.WEEK), (29, Day.MONTH))
    midnight = datetime.combine(today, datetime.min.time())
    return tuple(((midnight - timedelta(days=age)).timestamp(), day) for age, day in ages)


def day_of(used_at: float, starts: tuple[tuple[float, Day], ...]) -> Day:
    """Return the group of a chat that was used at a time, in seconds since the epoch."""
    return next((day for start, day in starts if used_at >= start), Day.OLDER)


class ChatFilter(QSortFilterProxyModel):
    """The chats whose titles or messages hold what is searched for; their titles can be edited."""

    def __init__(self, chats: ChatListModel, parent: QObject) -> None:
        super().__init__(parent)
        self._chats = chats
        self._headings: list[Day | None] | None = None
        self._searched = ""
        self.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        # Before the source is set, so that views which listen too find the headings forgotten already.
        self.modelReset.connect(self._forget_headings)
        self.rowsInserted.connect(self._forget_headings)
        self.rowsRemoved.connect(self._forget_headings)
        self.rowsMoved.connect(self._forget_headings)
        self.layoutChanged.connect(self._forget_headings)
        self.dataChanged.connect(self._forget_headings)
        self.setSourceModel(chats)
        chats.found_changed.connect(self.invalidate)

    def search(self, text: str) -> None:
        """Show only the chats that hold this text."""
        self._searched = text
        self.setFilterFixedString(text)

    def filterAcceptsRow(self, source_row: int, source_parent: _Index) -> bool:
        """Whether a chat is shown."""
        if super().filterAcceptsRow(source_row, source_parent):
            return True
        chats = self._chats
        chat_id = chats.index(source_row).data(ChatListModel.ChatIdRole)
        return chats.searched == self._searched and chat_id in chats.found_ids

    def flags(self, index: _Index) -> Qt.ItemFlag:
        """Return what can be done with a row."""
        flags = super().flags(index)
        return flags | Qt.ItemFlag.ItemIsEditable if index.isValid() else flags

    def heading(self, row: int) -> Day | None:
        """Return the group that a row is the first of, None where it is not the first."""
        if self._headings is None:
            starts = day_starts(date.today())
            days = [day_of(used_at, starts) for used_at in self._times()]
            self._headings = [day if i == 0 or day != days[i - 1] else None for i, day in enumerate(days)]
        return self._headings[row] if row < len(self._headings) else None

    def _times(self) -> Iterable[float]:
        if not self._searched:
            return (chat.used_at for chat in self._chats.rows())
        return (float(self.index(i, 0).data(ChatListModel.UsedAtRole)) for i in range(self.rowCount()))

    def _forget_headings(self) -> None:
        self._headings = None


class ChatDelegate(QStyledItemDelegate):
    """Paints a row, with the heading of its group above where it is the first, and edits its title.

    Signals:
        renamed(chat_id, title)
    """

    renamed = Signal(int, str)

    def __init__(self, theme: Theme, chats: ChatFilter, parent: ChatListView) -> None:
        super().__init__(parent)
        self._theme = theme
        self._chats = chats

    def day_height(self, index: _Index) -> int:
        """Return the height of the heading above a row, 0 where it has none."""
        return self._theme.scaled(_DAY_PX) if self._chats.heading(index.row()) else 0

    def more_rect(self, rect: QRect) -> QRect:
        """Return where a row's button for its menu is; `rect` is the row without its heading."""
        side = rect.height()
        return QRect(rect.right() - side + 1, rect.top(), side, side)

    def row_rect(self, rect: QRect, index: _Index) -> QRect:
        """Return the row itself, without the heading above."""
        return rect.adjusted(GRID, self.day_height(index), -GRID, 0)

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        """Return the size of a row with its heading."""
        return QSize(100, self._theme.scaled(_ROW_PX) + self.day_height(index))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        """Paint a row."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        row = self.row_rect(option.rect, index)
        state = option.state
        self._paint_day(painter, option.rect, index)
        is_selected = bool(state & QStyle.StateFlag.State_Selected)
        is_hot = bool(state & QStyle.StateFlag.State_MouseOver)
        has_focus = bool(state & QStyle.StateFlag.State_HasFocus)
        if is_selected or is_hot:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colour("selected" if is_selected else "hover"))
            painter.drawRoundedRect(row, _RADIUS, _RADIUS)
        if has_focus and self.parent_view().hasFocus():
            painter.setPen(QPen(self._theme.colour("accent"), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(row).adjusted(1, 1, -1, -1), _RADIUS, _RADIUS)
        right = self._paint_mark(painter, row, index, shows_menu=is_hot or has_focus)
        font = self._theme.ui_font()
        font.setBold(bool(index.data(ChatListModel.UnreadRole)))
        painter.setFont(font)
        painter.setPen(self._theme.colour("text"))
        title = row.adjusted(12, 0, right - row.right() - 4, 0)
        text = QFontMetrics(font).elidedText(
            str(index.data()).replace("\n", " "), Qt.TextElideMode.ElideRight, title.width()
        )
        painter.drawText(title, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)
        painter.restore()

    def parent_view(self) -> ChatListView:
        """Return the list that this delegate paints for."""
        view = self.parent()
        assert isinstance(view, ChatListView)
        return view

    def _paint_day(self, painter: QPainter, rect: QRect, index: _Index) -> None:
        day = self._chats.heading(index.row())
        if day is None:
            return
        names = {
            Day.TODAY: self.tr("Today"),
            Day.YESTERDAY: self.tr("Yesterday"),
            Day.WEEK: self.tr("Last 7 days"),
            Day.MONTH: self.tr("Last 30 days"),
            Day.OLDER: self.tr("Older"),
        }
        painter.setFont(self._theme.quiet_font())
        painter.setPen(self._theme.colour("quiet"))
        room = QRect(rect.left() + GRID + 12, rect.top(), rect.width(), self._theme.scaled(_DAY_PX) - 4)
        painter.drawText(room, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft, names[day])

    def _paint_mark(self, painter: QPainter, row: QRect, index: _Index, *, shows_menu: bool) -> int:
        """Paint what stands at a row's right end and return where the room for the title ends."""
        end = self.more_rect(row)
        centre = QRectF(end).center()
        if shows_menu:
            icon = QRectF(0, 0, self._theme.scaled(18), self._theme.scaled(18))
            icon.moveCenter(centre)
            paint_icon(painter, "more", self._theme.colour("quiet"), icon)
        elif index.data(ChatListModel.GeneratingRole):
            painter.setPen(QPen(self._theme.colour("accent"), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(centre, 4.0, 4.0)
        elif index.data(ChatListModel.UnreadRole):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colour("accent"))
            painter.drawEllipse(centre, 4.0, 4.0)
        elif index.data(ChatListModel.PinnedRole):
            icon = QRectF(0, 0, self._theme.scaled(16), self._theme.scaled(16))
            icon.moveCenter(centre)
            paint_icon(painter, "pin", self._theme.colour("quiet"), icon)
        else:
            return row.right() - 8
        return end.left()

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        """Return the line in which a title is edited."""
        editor = QLineEdit(parent)
        editor.setObjectName("rename_edit")
        editor.setAccessibleName(self.tr("Title of the chat"))
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: _Index) -> None:
        """Put the line over the title."""
        editor.setGeometry(self.row_rect(option.rect, index).adjusted(4, 2, -4, -2))

    def setEditorData(self, editor: QWidget, index: _Index) -> None:
        """Begin with the title as it is."""
        assert isinstance(editor, QLineEdit)
        editor.setText(str(index.data()))
        editor.selectAll()

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: _Index) -> None:
        """Ask for the new title; the model changes when the chat was renamed."""
        assert isinstance(editor, QLineEdit)
        title = editor.text().strip()
        if title and title != index.data():
            self.renamed.emit(int(index.data(ChatListModel.ChatIdRole)), title)

    def helpEvent(self, event: QEvent, view: QWidget, option: QStyleOptionViewItem, index: _Index) -> bool:
        """Show no tooltip: the title is there to be read."""
        return True


class ChatListView(QListView):
    """Shows a `ChatListModel`, filtered.

    Signals:
        chat_chosen(chat_id): open it.
        rename_requested(chat_id, title)
        delete_requested(chat_id)

    Thread: GUI thread.
    """

    chat_chosen = Signal(int)
    rename_requested = Signal(int, str)
    delete_requested = Signal(int)

    def __init__(self, chats: ChatListModel, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("chat_list_view")
        self.setAccessibleName(self.tr("Chats"))
        self._filter = ChatFilter(chats, self)
        self._delegate = ChatDelegate(theme, self._filter, self)
        self.setModel(self._filter)
        self.setItemDelegate(self._delegate)
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setLayoutMode(QListView.LayoutMode.Batched)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self._open_id = -1
        self._menu_id = -1
        theme.changed.connect(self._on_theme_changed)
        # Queued: the list changes by it, which must wait until Qt has closed the editor.
        self._delegate.renamed.connect(self.rename_requested, Qt.ConnectionType.QueuedConnection)
        self._filter.modelReset.connect(self._on_model_changed)
        self._filter.rowsInserted.connect(self._on_model_changed)
        self._filter.rowsMoved.connect(self._on_model_changed)
        self._filter.layoutChanged.connect(self._on_model_changed)

    def set_open_chat(self, chat_id: int) -> None:
        """Mark the chat that is shown; -1 for none of the list."""
        self._open_id = chat_id
        index = self._index_of(chat_id)
        if index.isValid():
            self.setCurrentIndex(index)
        else:
            self.clearSelection()
            self.setCurrentIndex(QModelIndex())

    def set_search(self, text: str) -> None:
        """Show only the chats whose titles or messages hold this text."""
        self._filter.search(text)

    def n_shown(self) -> int:
        """Return the number of rows."""
        return self._filter.rowCount()

    def choose_first(self) -> None:
        """Open the chat at the top."""
        if self._filter.rowCount():
            self.chat_chosen.emit(int(self._filter.index(0, 0).data(ChatListModel.ChatIdRole)))

    def begin_rename(self, chat_id: int) -> None:
        """Let a person edit a chat's title in place."""
        index = self._index_of(chat_id)
        if index.isValid():
            self.scrollTo(index)
            self.edit(index)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Open a chat, or its menu; the heading of a group is no part of its first row."""
        index = self.indexAt(event.position().toPoint())
        if not index.isValid():
            return
        row = self._delegate.row_rect(self.visualRect(index), index)
        pos = event.position().toPoint()
        if not row.contains(pos):
            return
        if event.button() == Qt.MouseButton.LeftButton and self._delegate.more_rect(row).contains(pos):
            self._show_menu(index, self.viewport().mapToGlobal(self._delegate.more_rect(row).bottomLeft()))
        elif event.button() == Qt.MouseButton.LeftButton:
            super().mousePressEvent(event)
            self.chat_chosen.emit(int(index.data(ChatListModel.ChatIdRole)))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Open the current chat with Enter; the Enter that ends renaming comes here too."""
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if self.state() == QListView.State.EditingState:
            return
        if is_enter and self.currentIndex().isValid():
            self.chat_chosen.emit(int(self.currentIndex().data(ChatListModel.ChatIdRole)))
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Show the menu of the chat under the pointer, or of the current one."""
        by_key = event.reason() == QContextMenuEvent.Reason.Keyboard
        index = self.currentIndex() if by_key else self.indexAt(event.pos())
        if index.isValid():
            at = self.visualRect(index).center() if by_key else event.pos()
            self._show_menu(index, self.viewport().mapToGlobal(at))

    def _show_menu(self, index: QModelIndex, at: QPoint) -> None:
        self._menu_id = int(index.data(ChatListModel.ChatIdRole))
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(self.tr("Rename")).triggered.connect(self._on_rename_chosen)
        menu.addAction(self.tr("Delete")).triggered.connect(self._on_delete_chosen)
        menu.popup(at)

    def _on_rename_chosen(self) -> None:
        self.begin_rename(self._menu_id)

    def _on_delete_chosen(self) -> None:
        self.delete_requested.emit(self._menu_id)

    def _on_theme_changed(self) -> None:
        self.scheduleDelayedItemsLayout()
        self.viewport().update()

    def _on_model_changed(self) -> None:
        self.set_open_chat(self._open_id)

    def _index_of(self, chat_id: int) -> QModelIndex:
        chats = self._filter.sourceModel()
        assert isinstance(chats, ChatListModel)
        row = chats.row_of(chat_id)
        return self._filter.mapFromSource(chats.index(row)) if row >= 0 else QModelIndex()
