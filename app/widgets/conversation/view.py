"""The conversation, painted: one scroll area over all messages of the open chat.

Holds on to what the reader reads: heights that become known, text that streams in and another width move nothing
that is in the window, unless the reader is at the end and follows it.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QContextMenuEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QMenu, QWidget

from app.models import ConversationModel, MessageItem
from app.theme import COLUMN_WIDTH, GRID, Theme
from app.widgets.conversation.block_painter import BlockPainter
from app.widgets.conversation.conversation_layout import ConversationLayout, Place
from app.widgets.conversation.documents import DocumentBuilder
from app.widgets.conversation.geometry import Geometry
from app.widgets.conversation.message_actions import MessageActions
from app.widgets.conversation.message_layout import code_of, last_code
from app.widgets.conversation.pointer import Hit, Pointer
from app.widgets.conversation.reading_position import ReadingPosition
from app.widgets.conversation.selection import selected_text
from app.widgets.icon_button import IconButton

_FRAME_MS = 33  # streamed text is shown at most 30 times a second
_COPIED_MS = 1500
_MARGIN_SIDE = 3 * GRID
_ANNOUNCED_CHARS = 2_000


class ConversationView(QAbstractScrollArea):
    """Shows a `ConversationModel`.

    Signals:
        link_clicked(url): a person wants to go there; nothing was opened.
        regenerate_requested: make the last reply again.

    Thread: GUI thread.
    """

    link_clicked = Signal(str)
    regenerate_requested = Signal()

    def __init__(self, conversation: ConversationModel, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversation_view")
        self.setAccessibleName(self.tr("Conversation"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setMouseTracking(True)
        self._conversation = conversation
        self._theme = theme
        builder = DocumentBuilder(theme)
        self._layout = ConversationLayout(builder, self._note_of)
        self._geometry = Geometry(self._layout, builder)
        self._painter = BlockPainter(theme, builder, self._layout, self._geometry)
        self._pointer = Pointer(self._layout, self._geometry)
        self._position = ReadingPosition(self._layout)
        self._is_placing = False
        self._grown: set[int] = set()
        self._hovered = -1
        self._pressed: Hit | None = None
        self._drag_pos = QPointF()
        self._copied: Place | None = None
        self._frame_timer = self._timer(_FRAME_MS, is_single=True)
        self._drag_timer = self._timer(_FRAME_MS, is_single=False)
        self._copied_timer = self._timer(_COPIED_MS, is_single=True)
        self._actions = MessageActions(theme, self.viewport())
        self._end_button = IconButton(theme, "arrow-down", self.tr("Go to the end"), self, is_raised=True)
        self._end_button.hide()
        self._connect()
        self._on_reset()

    def scroll_to_end(self) -> None:
        """Go to the end and follow it while text streams in."""
        self._position.scroll_to_end()
        self._place()

    def copy_selection(self) -> None:
        """Copy what is marked."""
        selection = self._pointer.selection
        if selection is not None and not selection.is_empty:
            QGuiApplication.clipboard().setText(selected_text(self._layout, selection))

    def copy_last_reply(self) -> None:
        """Copy the text of the last reply as it was written."""
        i = self._last_reply()
        if i >= 0:
            QGuiApplication.clipboard().setText(self._conversation.items()[i].text)

    def copy_last_code(self) -> bool:
        """Copy the last code of the last reply; False where there is none."""
        i = self._last_reply()
        code = last_code(self._layout.message(i)) if i >= 0 else None
        if code is not None:
            QGuiApplication.clipboard().setText(code)
        return code is not None

    def select_all(self) -> None:
        """Mark the whole conversation."""
        self._pointer.select_all()
        self.viewport().update()

    # What the model says

    def _connect(self) -> None:
        conversation = self._conversation
        conversation.reset.connect(self._on_reset)
        conversation.item_inserted.connect(self._on_item_inserted)
        conversation.item_changed.connect(self._on_item_changed)
        conversation.text_appended.connect(self._on_text_appended)
        conversation.items_removed.connect(self._on_items_removed)
        self._theme.changed.connect(self._on_theme_changed)
        self._frame_timer.timeout.connect(self._on_frame_due)
        self._drag_timer.timeout.connect(self._on_drag_due)
        self._copied_timer.timeout.connect(self._on_copied_over)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self._actions.copy_requested.connect(self._on_copy_requested)
        self._actions.regenerate_requested.connect(self.regenerate_requested)
        self._end_button.clicked.connect(self.scroll_to_end)

    def _on_reset(self) -> None:
        self._grown.clear()
        self._pointer.clear()
        self._copied = None
        self._hover(-1)
        self._layout.reset(self._conversation.items())
        self.scroll_to_end()

    def _on_item_inserted(self, i: int) -> None:
        items = self._conversation.items()
        self._layout.append(items, i)
        if items[i].role == "user":
            self._position.is_following = True
        self._grow(i)

    def _on_item_changed(self, i: int) -> None:
        self._grow(i)
        item = self._conversation.items()[i]
        if i == len(self._conversation.items()) - 1 and item.role == "assistant" and item.state != "streaming":
            self._announce(item)

    def _on_text_appended(self, i: int, delta: str) -> None:
        self._grow(i)

    def _on_items_removed(self, first: int, count: int) -> None:
        self._grown = {i for i in self._grown if i < first}
        self._pointer.clear()
        self._hover(-1)
        self._layout.remove(self._conversation.items(), first, count)
        self._settle()

    def _grow(self, i: int) -> None:
        self._grown.add(i)
        if not self._frame_timer.isActive():
            self._frame_timer.start()

    def _on_frame_due(self) -> None:
        items = self._conversation.items()
        for i in self._grown:
            self._layout.change(items, i)
        self._grown.clear()
        self._layout.move_border()
        self._settle()

    def _on_theme_changed(self) -> None:
        self._position.hold_line()
        self._layout.refresh()
        self._position.restore_line()
        self._settle()

    def _announce(self, item: MessageItem) -> None:
        if QAccessible.isActive():
            text = item.text[:_ANNOUNCED_CHARS] or self._note_of(item)
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def _note_of(self, item: MessageItem) -> str:
        if item.state == "failed":
            return item.error or self.tr("This reply failed.")
        if item.state == "queued":
            return self.tr("Waits for its turn")
        if item.state == "stopped":
            return self.tr("Stopped")
        if item.state == "interrupted":
            return self.tr("Interrupted: the program was closed before this reply was complete")
        if item.state == "streaming" and not item.text:
            return self.tr("Reading the conversation…")
        return ""

    def _last_reply(self) -> int:
        items = self._conversation.items()
        return next((i for i in reversed(range(len(items))) if items[i].role == "assistant"), -1)

    # Place and paint

    def _timer(self, interval_ms: int, *, is_single: bool) -> QTimer:
        timer = QTimer(self)
        timer.setInterval(interval_ms)
        timer.setSingleShot(is_single)
        return timer

    def _settle(self) -> None:
        self._position.settle()
        self._place()

    def _place(self) -> None:
        """Tell the scroll bar and the geometry where the reader is."""
        self._is_placing = True
        bar = self.verticalScrollBar()
        bar.setPageStep(self._position.height)
        bar.setSingleStep(self._theme.scaled(3 * GRID))
        bar.setRange(0, self._position.maximum)
        bar.setValue(self._position.value)
        self._is_placing = False
        self._geometry.top = self._position.top
        self._place_actions()
        self._end_button.setVisible(not self._position.is_following and self._layout.n_messages > 0)
        self.viewport().update()

    def _on_scrolled(self, value: int) -> None:
        if not self._is_placing:
            self._position.scroll_to(value)
            self._place()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """Do nothing: `_place` paints anew."""

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Wrap at the new width and keep the line at the window's top."""
        width = self.width()  # with the scroll bar's, so that the text stands over the composer
        column = max(min(COLUMN_WIDTH, width - 2 * _MARGIN_SIDE), 120)
        self._position.height = max(self.viewport().height(), 1)
        self._geometry.x = (width - column) // 2
        if column != self._layout.column:
            self._position.hold_line()
            self._layout.set_column(column)
            self._position.restore_line()
        size = self._end_button.sizeHint()
        self._end_button.setGeometry(
            (width - size.width()) // 2, self._position.height - size.height() - GRID, size.width(), size.height()
        )
        self._settle()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the blocks that touch the part to be painted."""
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(event.rect(), self._theme.colour("ground"))
        top = self._geometry.top
        seen = -1
        for shown in self._layout.shown(top + event.rect().top(), top + event.rect().bottom() + 1):
            if shown.place.message != seen:
                seen = shown.place.message
                self._paint_message(painter, seen)
            is_copied = self._copied == shown.place
            self._painter.paint_block(painter, shown, self._pointer.marked(shown), is_copied)

    def _paint_message(self, painter: QPainter, i: int) -> None:
        self._painter.paint_bubble(painter, i)
        if self._layout.message(i).has_border:
            self._painter.paint_border(painter, i, self.tr("What stands above has left the model's context"))
        self._painter.paint_note(painter, i)

    # Pointer and keyboard

    def _hover(self, i: int) -> None:
        if i != self._hovered:
            self._hovered = i
            self._place_actions()

    def _place_actions(self) -> None:
        items = self._conversation.items()
        i = self._hovered
        if not 0 <= i < len(items) or items[i].state in ("streaming", "queued"):
            self._actions.hide()
            return
        is_last_reply = i == self._last_reply()
        self._actions.show_for(items[i], can_regenerate=is_last_reply)
        footer = self._geometry.footer(i).toRect()
        is_right = self._layout.message(i).is_bubble
        x = footer.right() - self._actions.width() if is_right else footer.left() - GRID // 2
        self._actions.move(x, footer.top() + 2)
        self._actions.show()

    def _on_copy_requested(self) -> None:
        items = self._conversation.items()
        if 0 <= self._hovered < len(items):
            QGuiApplication.clipboard().setText(items[self._hovered].text)
            self._actions.show_copied()

    def _copy_code(self, place: Place) -> None:
        blocks = [view.block for view in self._layout.message(place.message).read(place.piece)]
        QGuiApplication.clipboard().setText(code_of(blocks, place.block))
        self._copied = place
        self._copied_timer.start()
        self.viewport().update()

    def _on_copied_over(self) -> None:
        self._copied = None
        self.viewport().update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin to mark text, or press what is under the pointer."""
        if event.button() != Qt.MouseButton.LeftButton:
            return
        hit = self._pointer.hit(event.position())
        self._pressed = hit
        if hit is not None and not hit.is_on_copy:
            extends = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
            self._pointer.press(hit.spot, extends=extends)
        self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Mark text while a button is held, else show what can be done here."""
        pos = event.position()
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._drag_pos = pos
            is_outside = not 0 <= pos.y() < self._position.height
            if is_outside and not self._drag_timer.isActive():
                self._drag_timer.start()
            elif not is_outside:
                self._drag_timer.stop()
            self._drag_to(pos)
            return
        hit = self._pointer.hit(pos)
        shape = Qt.CursorShape.ArrowCursor
        if hit is not None and (hit.href or hit.is_on_copy):
            shape = Qt.CursorShape.PointingHandCursor
        elif hit is not None and hit.is_on_text:
            shape = Qt.CursorShape.IBeamCursor
        self.viewport().setCursor(shape)
        self.viewport().setToolTip(self.tr("Copy code") if hit and hit.is_on_copy else hit.href if hit else "")
        self._hover(hit.spot.place.message if hit is not None else -1)

    def _drag_to(self, pos: QPointF) -> None:
        hit = self._pointer.hit(pos)
        if hit is not None and self._pressed is not None and not self._pressed.is_on_copy:
            self._pointer.drag(hit.spot)
            self.viewport().update()

    def _on_drag_due(self) -> None:
        beyond = self._drag_pos.y() if self._drag_pos.y() < 0 else self._drag_pos.y() - self._position.height
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + round(max(min(beyond, 60), -60)))
        self._drag_to(QPointF(self._drag_pos.x(), min(max(self._drag_pos.y(), 0), self._position.height - 1)))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Follow a link or press a button where nothing was marked."""
        self._drag_timer.stop()
        pressed, self._pressed = self._pressed, None
        if event.button() != Qt.MouseButton.LeftButton or pressed is None:
            return
        hit = self._pointer.hit(event.position())
        selection = self._pointer.selection
        if hit is not None and pressed.is_on_copy and hit.is_on_copy:
            self._copy_code(hit.spot.place)
        elif hit is not None and hit.href and hit.href == pressed.href and (selection is None or selection.is_empty):
            self.link_clicked.emit(hit.href)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Mark a word."""
        hit = self._pointer.hit(event.position())
        if hit is not None and event.button() == Qt.MouseButton.LeftButton:
            self._pointer.select_word(hit.spot)
            self.viewport().update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll the conversation, or sideways the wide block under the pointer."""
        dx = event.pixelDelta().x() or event.angleDelta().x() // 2
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not dx:
            dx = event.angleDelta().y() // 2
        shown = self._pointer.shown_at(event.position().y()) if dx else None
        if shown is not None and abs(dx) > abs(event.pixelDelta().y()):
            room = shown.view.text_width - self._geometry.rects(shown).text.width()
            if room > 1:
                self._layout.scroll_sideways(shown.place, round(min(max(shown.view.scroll_x - dx, 0), room)))
                self.viewport().update()
                event.accept()
                return
        super().wheelEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        """Take the actions away with the pointer."""
        self._hover(-1)
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Scroll and copy by keyboard."""
        bar = self.verticalScrollBar()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        elif event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        elif event.key() == Qt.Key.Key_Space:
            bar.setValue(bar.value() + self._position.height - 6 * GRID)
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer what can be done with what is under the pointer."""
        hit = self._pointer.hit(QPointF(event.pos()))
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        selection = self._pointer.selection
        copy = menu.addAction(self.tr("Copy"))
        copy.setEnabled(selection is not None and not selection.is_empty)
        copy.triggered.connect(self.copy_selection)
        menu.addAction(self.tr("Select all")).triggered.connect(self.select_all)
        if hit is not None:
            self._hover(hit.spot.place.message)
            menu.addAction(self.tr("Copy message")).triggered.connect(self._on_copy_requested)
        menu.popup(event.globalPos())
