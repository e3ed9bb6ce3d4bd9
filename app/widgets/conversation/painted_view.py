"""The conversation, painted: one scroll area over all messages of the open chat.

Holds on to what the reader reads: heights that become known, text that streams in and another width move nothing
that is in the window, unless the reader is at the end and follows it. What pointer and keyboard do stands in `view`.
"""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QWidget

from app.models import ConversationModel, MessageItem
from app.theme import COLUMN_WIDTH, GRID, Theme
from app.widgets.conversation.block_painter import BlockPainter
from app.widgets.conversation.colouring import Colouring
from app.widgets.conversation.conversation_layout import ConversationLayout, Place
from app.widgets.conversation.documents import DocumentBuilder
from app.widgets.conversation.finder import Finder
from app.widgets.conversation.geometry import Geometry
from app.widgets.conversation.markdown import warm_up
from app.widgets.conversation.pointer import Pointer
from app.widgets.conversation.reading_position import ReadingPosition
from app.widgets.icon_button import IconButton

_FRAME_MS = 33  # streamed text is shown at most 30 times a second
_WARM_MS = 200  # after the window's first frame, since timers wait for the event loop
_REST = 3  # times that a slow frame took are left to other things before the next
_COLOUR_MS = 15  # between two slices of colouring code
_MARGIN_SIDE = 3 * GRID
_ANNOUNCED_CHARS = 2_000


class PaintedConversation(QAbstractScrollArea):
    """Shows a `ConversationModel`.

    Thread: GUI thread.
    """

    def __init__(self, conversation: ConversationModel, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._conversation = conversation
        self._theme = theme
        builder = DocumentBuilder(theme)
        self._layout = ConversationLayout(builder, self._note_of)
        self._geometry = Geometry(self._layout, builder)
        self._finder = Finder(self._layout)
        self._painter = BlockPainter(theme, builder, self._layout, self._geometry, self._finder)
        self._pointer = Pointer(self._layout, self._geometry)
        self._position = ReadingPosition(self._layout)
        self._colouring = Colouring(theme, self._layout)
        self._is_placing = False
        self._grown: set[int] = set()
        self._copied: Place | None = None
        self._focused = -1
        self._frame_timer = make_timer(self, _FRAME_MS, is_single=True)
        self._colour_timer = make_timer(self, _COLOUR_MS, is_single=True)
        self._warm_timer = make_timer(self, _WARM_MS, is_single=True)
        self._end_button = IconButton(theme, "arrow-down", self.tr("Go to the end"), self, is_raised=True)
        self._end_button.hide()
        conversation.reset.connect(self._on_reset)
        conversation.item_inserted.connect(self._on_item_inserted)
        conversation.item_changed.connect(self._on_item_changed)
        conversation.text_appended.connect(self._on_text_appended)
        conversation.items_removed.connect(self._on_items_removed)
        theme.changed.connect(self._on_theme_changed)
        self._frame_timer.timeout.connect(self._on_frame_due)
        self._colour_timer.timeout.connect(self._on_colour_due)
        self._warm_timer.timeout.connect(self._on_warm_due)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self._end_button.clicked.connect(self.scroll_to_end)
        self._warm_timer.start()

    def scroll_to_end(self) -> None:
        """Go to the end and follow it while text streams in."""
        self._position.scroll_to_end()
        self._place()

    # What the model says

    def _on_reset(self) -> None:
        self._grown.clear()
        self._pointer.clear()
        self._copied = None
        self._layout.reset(self._conversation.items())
        self.scroll_to_end()

    def _on_item_inserted(self, i: int) -> None:
        items = self._conversation.items()
        if i != self._layout.n_messages:
            self._pointer.clear()
        self._layout.append(items, i)
        if items[i].role == "user":
            self._position.is_following = True
        self._grow(i)

    def _on_item_changed(self, i: int) -> None:
        self._grow(i)
        items = self._conversation.items()
        if i == len(items) - 1 and items[i].role == "assistant" and items[i].state != "streaming":
            self._announce(items[i])

    def _on_text_appended(self, i: int, delta: str) -> None:
        self._grow(i)

    def _on_items_removed(self, first: int, count: int) -> None:
        self._grown = {i for i in self._grown if i < first}
        self._pointer.clear()
        self._layout.remove(self._conversation.items(), first, count)
        self._settle()

    def _grow(self, i: int) -> None:
        self._grown.add(i)
        if not self._frame_timer.isActive():
            self._frame_timer.start()

    def _on_frame_due(self) -> None:
        started = time.perf_counter()
        self._take_in()
        self._settle()
        cost_ms = 1000 * (time.perf_counter() - started)
        self._frame_timer.setInterval(max(_FRAME_MS, round(_REST * cost_ms)))

    def _take_in(self) -> None:
        """Lay out what has changed since the last frame."""
        items = self._conversation.items()
        for i in self._grown:
            self._layout.change(items, i)
        self._grown.clear()
        self._layout.move_border()

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
        if item.role == "system":
            return self.tr("System prompt")
        if item.state == "failed":
            return item.error or self.tr("This reply failed.")
        if item.state == "queued":
            return self.tr("Waiting to begin")
        if item.state == "stopped":
            return self.tr("Stopped")
        if item.state == "interrupted":
            return self.tr("Interrupted: the program was closed before this reply was complete")
        if item.state == "streaming" and not item.text:
            return self.tr("Reading the conversation…")
        return ""

    # Place and paint

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
        self._end_button.setVisible(not self._position.is_following and self._layout.n_messages > 0)
        self._on_colour_due()
        self.viewport().update()

    def _on_colour_due(self) -> None:
        """Go on colouring the code in the window."""
        top = self._geometry.top
        if self._colouring.go_on(self._layout.shown(top, top + self._position.height)):
            self.viewport().update()
        if not self._colouring.is_complete:
            self._colour_timer.start()

    def _on_scrolled(self, value: int) -> None:
        if not self._is_placing:
            self._position.scroll_to(value)
            self._place()

    def _on_warm_due(self) -> None:
        warm_up()

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
            self._painter.paint_block(
                painter, shown, self._pointer.marked(shown), is_copied=self._copied == shown.place
            )

        if self._position.value > 0:
            painter.fillRect(0, 0, self.viewport().width(), 1, self._theme.colour("line"))

    def _paint_message(self, painter: QPainter, i: int) -> None:
        self._painter.paint_bubble(painter, i)
        if self._layout.message(i).has_border:
            self._painter.paint_border(painter, i, self.tr("What stands above has left the model's context"))
        self._painter.paint_note(painter, i)
        if i == self._focused and self.hasFocus():
            self._painter.paint_focus(painter, i)


def make_timer(parent: QWidget, interval_ms: int, *, is_single: bool) -> QTimer:
    """Return a timer that is not started."""
    timer = QTimer(parent)
    timer.setInterval(interval_ms)
    timer.setSingleShot(is_single)
    return timer
