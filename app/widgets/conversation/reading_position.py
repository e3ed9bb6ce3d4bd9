"""Which part of a conversation is in the window, and how that stays so while heights change."""

from __future__ import annotations

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QTextDocument

from app.theme import GRID
from app.widgets.conversation.conversation_layout import Anchor, ConversationLayout, Place

MARGIN_TOP, MARGIN_BOTTOM = 3 * GRID, 2 * GRID  # px above the first message and below the last
_AT_END = 4  # px from the end that still count as being there


class ReadingPosition:
    """Holds on to what stands at the window's top, or to the end while the reader is there.

    Attributes:
        height: of the window, px.
        value: px from the top margin's upper edge to the window's top; maximum: the largest it can be.
        is_following: the reader is at the end; new text keeps him there.
    """

    def __init__(self, layout: ConversationLayout) -> None:
        self._layout = layout
        self._anchor = Anchor(Place(0), -MARGIN_TOP)
        # The character at the window's top, its block, and px from its line's top to the window's.
        self._line: tuple[Place, int, float] | None = None
        self.height = 1
        self.value = 0
        self.maximum = 0
        self.is_following = True

    @property
    def top(self) -> int:
        """The place of the layout that is at the window's top, px."""
        return self.value - MARGIN_TOP

    def settle(self) -> None:
        """Lay out what is in the window and a bit around it, then find `value` and `maximum` anew."""
        layout = self._layout
        last = layout.last_place()
        if last is None:
            self._line = None
            self.value = self.maximum = 0
            self._anchor = Anchor(Place(0), -MARGIN_TOP)
            return
        if self.is_following:
            layout.settle(Anchor(last, 0), 2 * self.height, 0)
            last = layout.last_place() or last
            self._measure()
            self.value = self.maximum
            self._take_anchor()
            return
        self._anchor = Anchor(layout.clamped(self._anchor.place), self._anchor.offset)
        layout.settle(self._anchor, self.height, 2 * self.height)
        self._measure()
        wanted = layout.top_of(self._anchor.place) + self._anchor.offset + MARGIN_TOP
        self.value = min(max(wanted, 0), self.maximum)
        if self.value != wanted:
            layout.settle(Anchor(last, 0), 2 * self.height, 0)
            self._measure()
            self.value = min(max(wanted, 0), self.maximum)
        self._take_anchor()  # its block may have become shorter than the offset

    def scroll_to(self, value: int) -> None:
        """Go to another place because the reader wants it."""
        step = self.value - value
        self._line = None
        self.is_following = value >= self.maximum - _AT_END
        if self._layout.n_messages and not self.is_following:
            if 0 < step <= self.height:
                # What comes in from above must have its height first, or what is read would jump.
                self._layout.settle(self._anchor, step + self.height, 0)
                value = self._layout.top_of(self._anchor.place) + self._anchor.offset + MARGIN_TOP - step
            self.value = value
            self._take_anchor()
        self.settle()

    def scroll_to_end(self) -> None:
        """Go to the end and follow it."""
        self._line = None
        self.is_following = True
        self.settle()

    def go_to_message(self, i: int) -> None:
        """Bring the beginning of a message to the window's top."""
        self._line = None
        self.is_following = False
        self._anchor = Anchor(Place(i), -MARGIN_TOP)
        self.settle()

    @property
    def first_place(self) -> Place:
        """The block at the window's top."""
        return self._layout.clamped(self._anchor.place)

    def go_to_spot(self, place: Place, char: int) -> None:
        """Bring the line with a character into the window, a third below its top; nothing moves where it is there."""
        document = self._layout.ensure(place).document
        if document is None:
            return
        offset = round(line_top(document, char)) + self._head(place)
        y = self._layout.top_of(place) + offset - self.top
        if not GRID <= y < self.height - 5 * GRID:
            self._line = None
            self.is_following = False
            self._anchor = Anchor(place, offset - self.height // 3)
            self.settle()

    def hold_line(self) -> None:
        """Remember the line at the window's top, before the text is wrapped anew."""
        if self._line is not None or self.is_following or not self._layout.n_messages:
            return
        place = self._layout.clamped(self._anchor.place)
        document = self._layout.ensure(place).document
        inner = self._anchor.offset - self._head(place)
        if document is None or inner < 0:
            return
        char = document.documentLayout().hitTest(QPointF(0, inner), Qt.HitTestAccuracy.FuzzyHit)
        if char >= 0:
            self._line = place, char, inner - line_top(document, char)

    def restore_line(self) -> None:
        """Bring the line that `hold_line` remembered back to the window's top."""
        if self._line is not None and self._layout.n_messages:
            held, char, rest = self._line
            place = self._layout.clamped(held)
            document = self._layout.ensure(place).document
            if document is not None:
                self._anchor = Anchor(place, round(line_top(document, char) + rest) + self._head(place))

    def _head(self, place: Place) -> int:
        return self._layout.message(place.message).text_offset(place.piece, place.block)

    def _measure(self) -> None:
        self.maximum = max(self._layout.total + MARGIN_TOP + MARGIN_BOTTOM - self.height, 0)

    def _take_anchor(self) -> None:
        self._anchor = Anchor(*self._layout.place_at(self.top))


def line_top(document: QTextDocument, char: int) -> float:
    """Return where the line with a character begins in its document, px; the last one's where there are fewer."""
    char = min(char, document.characterCount() - 1)
    block = document.findBlock(char)
    line = block.layout().lineForTextPosition(char - block.position())
    top = document.documentLayout().blockBoundingRect(block).top()
    return top + (line.y() if line.isValid() else 0.0)
