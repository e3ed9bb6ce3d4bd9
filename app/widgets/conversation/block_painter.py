"""Paint the blocks of a conversation.

Last step of a message's way to the screen.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QPainter,
    QPainterPath,
    QPalette,
    QPen,
    QTextDocument,
)

from app.icons import paint_icon
from app.theme import RADIUS, Theme
from app.widgets.conversation.blocks import BULLETS, BlockKind, MarkKind
from app.widgets.conversation.conversation_layout import ConversationLayout, Shown
from app.widgets.conversation.documents import CODE_PADDING, DocumentBuilder, row_tops
from app.widgets.conversation.finder import Finder, cursor_of
from app.widgets.conversation.geometry import BlockRects, Geometry
from app.widgets.conversation.message_layout import BlockView

_CODE_RADIUS = 8
_SCROLL_BAR = 4  # px


class BlockPainter:
    """Paints blocks with the colours of the theme."""

    def __init__(
        self,
        theme: Theme,
        builder: DocumentBuilder,
        layout: ConversationLayout,
        geometry: Geometry,
        finder: Finder,
    ) -> None:
        self._theme = theme
        self._builder = builder
        self._layout = layout
        self._geometry = geometry
        self._finder = finder

    def paint_bubble(self, painter: QPainter, i: int) -> None:
        """Paint the tint behind a person's turn."""
        rect = self._geometry.bubble(i)
        if not rect.isEmpty():
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colour("tint"))
            painter.drawRoundedRect(rect, RADIUS, RADIUS)

    def paint_border(self, painter: QPainter, i: int, text: str) -> None:
        """Paint the line that says what has left the context."""
        rect = self._geometry.border(i)
        painter.setFont(self._theme.quiet_font())
        room = painter.fontMetrics().horizontalAdvance(text) + 24
        line = QRectF(rect.left(), round(rect.center().y()), (rect.width() - room) / 2, 1)
        if line.width() > 0:
            painter.fillRect(line, self._theme.colour("line"))
            painter.fillRect(line.translated(line.width() + room, 0), self._theme.colour("line"))
        painter.setPen(self._theme.colour("quiet"))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)

    def paint_note(self, painter: QPainter, i: int) -> None:
        """Paint the line under a message's text."""
        note = self._layout.message(i).note
        if note is not None:
            painter.save()
            painter.translate(self._geometry.note(i).topLeft())
            note.drawContents(painter)
            painter.restore()

    def paint_block(self, painter: QPainter, shown: Shown, marked: tuple[int, int] | None, *, is_copied: bool) -> None:
        """Paint one block.

        Args:
            painter: of the window.
            shown: the block.
            marked: its characters that are selected.
            is_copied: it is code that was just copied.
        """
        rects = self._geometry.rects(shown)
        block = shown.view.block
        self._paint_marks(painter, shown, rects)
        if block.kind == BlockKind.RULE:
            line = QRectF(rects.outer.left(), round(rects.outer.center().y()), rects.outer.width(), 1)
            painter.fillRect(line, self._theme.colour("line"))
            return
        if block.kind == BlockKind.EMPTY:
            return
        if block.kind == BlockKind.CODE:
            self._paint_code_box(painter, shown, rects, is_copied)
        self._paint_text(painter, shown, rects, marked)

    def _paint_text(self, painter: QPainter, shown: Shown, rects: BlockRects, marked: tuple[int, int] | None) -> None:
        document = shown.view.document
        assert document is not None
        context = QAbstractTextDocumentLayout.PaintContext()
        marks = [self._mark(document, *place, "found") for place in self._finder.places(document)]
        if marked is not None:
            # A table begins with an empty line of Qt's own, which would show as a mark beside it.
            first = max(marked[0], 1) if shown.view.block.kind == BlockKind.TABLE else marked[0]
            marks.append(self._mark(document, first, marked[1], "selection"))
        context.selections = marks
        context.palette.setColor(QPalette.ColorRole.Text, self._theme.colour("text"))
        painter.save()
        if shown.view.block.kind == BlockKind.TABLE:
            self._paint_rows(painter, shown, rects)
        is_wide = shown.view.text_width > rects.text.width() + 1
        if is_wide:
            painter.setClipRect(rects.text, Qt.ClipOperation.IntersectClip)
        painter.translate(rects.text.left() - shown.view.scroll_x, rects.text.top())
        document.documentLayout().draw(painter, context)
        painter.restore()
        if is_wide and shown.view.block.is_last:
            self._paint_scroll_bar(painter, shown, rects)

    def _mark(
        self, document: QTextDocument, first: int, end: int, colour: str
    ) -> QAbstractTextDocumentLayout.Selection:
        """Return characters of a document on a ground, in the colour that belongs to it."""
        mark = QAbstractTextDocumentLayout.Selection()
        mark.cursor = cursor_of(document, first, end)
        mark.format.setBackground(self._theme.colour(colour))
        mark.format.setForeground(self._theme.colour(f"on_{colour}"))
        return mark

    def _paint_rows(self, painter: QPainter, shown: Shown, rects: BlockRects) -> None:
        """Paint the lines between the rows of a table, the one under its heading stronger."""
        assert shown.view.document is not None
        width = min(shown.view.text_width, rects.text.width())
        for i, top in enumerate(row_tops(shown.view.document)):
            if i or not shown.view.block.is_first:
                is_strong = i == 1 and shown.view.block.is_first
                line = QRectF(rects.text.left(), round(rects.outer.top() + top), width, 1)
                painter.fillRect(line, self._theme.colour("strong_line" if is_strong else "line"))

    def _paint_scroll_bar(self, painter: QPainter, shown: Shown, rects: BlockRects) -> None:
        share = rects.text.width() / shown.view.text_width
        start = shown.view.scroll_x / shown.view.text_width
        bar = QRectF(
            rects.text.left() + start * rects.text.width(),
            rects.outer.bottom() - _SCROLL_BAR - 3,
            share * rects.text.width(),
            _SCROLL_BAR,
        )
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colour("strong_line"))
        painter.drawRoundedRect(bar, _SCROLL_BAR / 2, _SCROLL_BAR / 2)

    def _paint_marks(self, painter: QPainter, shown: Shown, rects: BlockRects) -> None:
        x = rects.left
        above = shown.view.height - rects.outer.height()
        message = self._layout.message(shown.place.message)
        is_out = message.item.is_out
        blocks = message.read(shown.place.piece)
        before = blocks[shown.place.block - 1].block.marks if shown.place.block else ()
        for level, mark in enumerate(shown.view.block.marks):
            width = self._builder.mark_width(mark.kind, mark.width_chars)
            if mark.kind == MarkKind.QUOTE:
                is_continued = len(before) > level and before[level].kind == MarkKind.QUOTE
                top = rects.outer.top() - (above if is_continued else 0)
                painter.fillRect(QRectF(x, top, 3, rects.outer.bottom() - top), self._theme.colour("line"))
            elif mark.label:
                painter.setFont(self._theme.text_font())
                painter.setPen(self._theme.colour("out" if is_out else "quiet" if mark.label in BULLETS else "text"))
                right = x + width - 8 - painter.fontMetrics().horizontalAdvance(mark.label)
                painter.drawText(QPointF(right, rects.text.top() + baseline(shown.view)), mark.label)
            x += width

    def _paint_code_box(self, painter: QPainter, shown: Shown, rects: BlockRects, is_copied: bool) -> None:
        block = shown.view.block
        path = QPainterPath()
        path.setFillRule(Qt.FillRule.WindingFill)
        path.addRoundedRect(rects.outer, _CODE_RADIUS, _CODE_RADIUS)
        if not block.is_first:
            path.addRect(rects.outer.adjusted(0, 0, 0, -_CODE_RADIUS))
        if not block.is_last:
            path.addRect(rects.outer.adjusted(0, _CODE_RADIUS, 0, 0))
        painter.fillPath(path.simplified(), self._theme.colour("code"))
        if not block.is_first:
            return
        painter.setFont(self._theme.quiet_font())
        painter.setPen(self._theme.colour("quiet"))
        head = QRectF(rects.outer.left() + CODE_PADDING, rects.outer.top(), rects.outer.width() - 64, rects.head)
        painter.drawText(head, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, block.language[:40])
        side = self._theme.scaled(18)
        icon = QRectF(0, 0, side, side)
        icon.moveCenter(rects.copy_button.center())
        colour = self._theme.colour("accent" if is_copied else "quiet")
        paint_icon(painter, "check" if is_copied else "copy", colour, icon)

    def paint_focus(self, painter: QPainter, i: int) -> None:
        """Paint the frame around the message that the keyboard is on."""
        rect = self._geometry.frame(i)
        painter.setPen(QPen(self._theme.colour("accent"), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(rect, RADIUS, RADIUS)


def baseline(view: BlockView) -> float:
    """Return px from the top of a block's document to the baseline of its first line."""
    document = view.document
    line = document.firstBlock().layout().lineAt(0) if document is not None else None
    return line.y() + line.ascent() if line is not None and line.isValid() else 0.0
