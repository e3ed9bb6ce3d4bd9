"""What the pointer is on, and what it marks."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QTextCursor, QTextDocument

from app.widgets.conversation.blocks import BlockKind
from app.widgets.conversation.conversation_layout import ConversationLayout, Place, Shown
from app.widgets.conversation.geometry import Geometry
from app.widgets.conversation.selection import Selection, Spot


@dataclass(frozen=True, slots=True)
class Hit:
    """What is at a place in the window.

    Attributes:
        is_on_text: letters can be marked here.
        href: where the link goes that is here; empty where there is none.
        is_on_copy: the copy button of code is here.
    """

    spot: Spot
    is_on_text: bool = False
    href: str = ""
    is_on_copy: bool = False


class Pointer:
    """Finds what is under the pointer and keeps the selection.

    Attributes:
        selection: what is marked; None for nothing.
    """

    def __init__(self, layout: ConversationLayout, geometry: Geometry) -> None:
        self._layout = layout
        self._geometry = geometry
        self.selection: Selection | None = None

    def shown_at(self, y: float) -> Shown | None:
        """Return the block nearest to a height in the window; None in an empty chat."""
        if not self._layout.n_messages:
            return None
        place, _ = self._layout.place_at(round(y) + self._geometry.top)
        return Shown(place, self._layout.ensure(place), self._layout.top_of(place))

    def hit(self, pos: QPointF) -> Hit | None:
        """Return what is at a place in the window; None in an empty chat."""
        shown = self.shown_at(pos.y())
        if shown is None or shown.view.document is None:
            return None
        rects = self._geometry.rects(shown)
        block = shown.view.block
        point = self._geometry.text_point(shown, rects, pos)
        layout = shown.view.document.documentLayout()
        char = max(layout.hitTest(point, Qt.HitTestAccuracy.FuzzyHit), 0)
        if point.y() < 0:
            char = 0
        elif pos.y() > rects.outer.bottom():
            char = shown.view.document.characterCount() - 1
        return Hit(
            Spot(shown.place, char),
            is_on_text=rects.text.contains(pos) and block.kind not in (BlockKind.RULE, BlockKind.EMPTY),
            href=layout.anchorAt(point) if rects.text.contains(pos) else "",
            is_on_copy=block.kind == BlockKind.CODE and block.is_first and rects.copy_button.contains(pos),
        )

    def press(self, spot: Spot, *, extends: bool) -> None:
        """Begin to mark, or with `extends` move the end of what is marked."""
        tail = self.selection.tail if extends and self.selection else spot
        self.selection = Selection(tail, spot)

    def drag(self, spot: Spot) -> None:
        """Mark up to here."""
        if self.selection is not None:
            self.selection = Selection(self.selection.tail, spot)

    def select_word(self, spot: Spot) -> None:
        """Mark the word at a spot."""
        document = self._layout.ensure(spot.place).document
        if document is not None:
            cursor = QTextCursor(document)
            cursor.setPosition(spot.char)
            cursor.select(QTextCursor.SelectionType.WordUnderCursor)
            self._take(spot.place, cursor.selectionStart(), cursor.selectionEnd())

    def select_block(self, spot: Spot) -> None:
        """Mark the whole block that a spot is in."""
        document = self._layout.ensure(spot.place).document
        if document is not None:
            self._take(spot.place, 0, last_char(document))

    def select_all(self) -> None:
        """Mark the whole conversation."""
        place = self._layout.last_place()
        if place is not None:
            document = self._layout.ensure(place).document
            end = last_char(document) if document is not None else 0
            self.selection = Selection(Spot(Place(0), 0), Spot(place, end))

    def clear(self) -> None:
        """Mark nothing."""
        self.selection = None

    def marked(self, shown: Shown) -> tuple[int, int] | None:
        """Return the marked characters of a block as (first, end), None where there are none."""
        if self.selection is None or shown.view.document is None:
            return None
        return self.selection.within(shown.place, last_char(shown.view.document))

    def _take(self, place: Place, start: int, end: int) -> None:
        self.selection = Selection(Spot(place, start), Spot(place, end))


def last_char(document: QTextDocument) -> int:
    """Return the place after the last character of a document."""
    return document.characterCount() - 1
