"""Where a block stands in the window, for painting it and for finding what the pointer is on."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF

from app.widgets.conversation.blocks import BlockKind
from app.widgets.conversation.conversation_layout import ConversationLayout, Shown
from app.widgets.conversation.documents import CODE_EDGE, CODE_PADDING, DocumentBuilder
from app.widgets.conversation.message_layout import (
    BUBBLE_PADDING_X,
    BUBBLE_PADDING_Y,
    MessageLayout,
)


@dataclass(frozen=True, slots=True)
class BlockRects:
    """Rectangles of one block in the window.

    Attributes:
        outer: without the gap above, from its indentation to the right edge of the text.
        text: where its document is painted; wider documents are clipped to it.
        left: left edge of the text column, where the block's marks begin.
        head: height of the row with the language of code.
    """

    outer: QRectF
    text: QRectF
    left: float
    head: float = 0.0

    @property
    def copy_button(self) -> QRectF:
        """The button in the head of code."""
        return QRectF(self.outer.right() - self.head - 2, self.outer.top() + 2, self.head, self.head - 4)


class Geometry:
    """Places in the window for one scroll position.

    Attributes:
        x: left edge of the column in the window, px; top: what place of the layout is at the window's top.
    """

    def __init__(self, layout: ConversationLayout, builder: DocumentBuilder) -> None:
        self._layout = layout
        self._builder = builder
        self.x = 0
        self.top = 0

    def bubble(self, i: int) -> QRectF:
        """Return the rectangle of the tint behind a message; empty for replies."""
        message = self._layout.message(i)
        if not message.is_bubble:
            return QRectF()
        width = message.bubble_width + 2 * BUBBLE_PADDING_X
        top = self._layout.top_of_message(i) - self.top + (self._builder.border if message.has_border else 0)
        return QRectF(self.x + self._layout.column - width, top, width, message.body_height + 2 * BUBBLE_PADDING_Y)

    def left(self, i: int) -> float:
        """Return the left edge of a message's text."""
        message = self._layout.message(i)
        return self.bubble(i).left() + BUBBLE_PADDING_X if message.is_bubble else self.x

    def footer(self, i: int) -> QRectF:
        """Return the room for the actions of a message."""
        bottom = self._layout.top_of_message(i) + self._layout.message(i).height - self.top
        return QRectF(self.x, bottom - self._builder.footer, self._layout.column, self._builder.footer)

    def note(self, i: int) -> QRectF:
        """Return the room for the line under a message's text."""
        message = self._layout.message(i)
        footer = self.footer(i)
        return QRectF(self.x, footer.top() - message.note_height + 8, self._layout.column, message.note_height)

    def frame(self, i: int) -> QRectF:
        """Return a message without the room for its actions, a bit larger than its text."""
        message = self._layout.message(i)
        bubble = self.bubble(i)
        if not bubble.isEmpty():
            return bubble.adjusted(-3, -3, 3, 3)
        top = self._layout.top_of_message(i) - self.top + (self._builder.border if message.has_border else 0)
        height = message.body_height + message.note_height
        return QRectF(self.x, top, self._layout.column, height).adjusted(-12, -8, 12, 8)

    def border(self, i: int) -> QRectF:
        """Return the room for the line above a message that says what has left the context."""
        return QRectF(self.x, self._layout.top_of_message(i) - self.top, self._layout.column, self._builder.border)

    def rects(self, shown: Shown) -> BlockRects:
        """Return the rectangles of a block."""
        message = self._layout.message(shown.place.message)
        block, place = shown.view.block, shown.place
        left = self.left(place.message)
        indent = self._builder.indent(block)
        gap = message.gap(place.piece, place.block)
        outer = QRectF(left + indent, shown.top - self.top + gap, _width(message) - indent, shown.view.height - gap)
        text = QRectF(outer)
        if block.kind == BlockKind.CODE:
            head = self._builder.code_head if block.is_first else 0
            edge = CODE_EDGE if block.is_last else 0
            text = outer.adjusted(CODE_PADDING, head, -CODE_PADDING, -edge)
        lead = self._builder.code_lead_px if block.kind == BlockKind.CODE else self._builder.lead_px
        return BlockRects(outer, text.translated(0, -lead), left, self._builder.code_head)

    def text_point(self, shown: Shown, rects: BlockRects, pos: QPointF) -> QPointF:
        """Return a place in the window as a place in a block's document."""
        return pos - rects.text.topLeft() + QPointF(shown.view.scroll_x, 0)


def _width(message: MessageLayout) -> int:
    return message.bubble_width if message.is_bubble else message.text_width
