"""What is marked in a conversation: from one character to another, across blocks and messages."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QTextCursor

from app.widgets.conversation.blocks import BlockKind
from app.widgets.conversation.conversation_layout import ConversationLayout, Place
from app.widgets.conversation.message_layout import BlockView

_READ_CHARS = 64_000  # a longer selection of whole messages is copied as it was written, without reading it


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A place between two characters."""

    place: Place
    char: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What lies between two spots; `head` moves with the pointer, `tail` stays."""

    tail: Spot
    head: Spot

    @property
    def first(self) -> Spot:
        """The earlier of the two ends."""
        return min(self.tail, self.head)

    @property
    def last(self) -> Spot:
        """The later of the two ends."""
        return max(self.tail, self.head)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is marked."""
        return self.tail == self.head

    def within(self, place: Place, n_chars: int) -> tuple[int, int] | None:
        """Return the marked characters of a block as (first, end), None where there are none."""
        if self.is_empty or not self.first.place <= place <= self.last.place:
            return None
        # The text may have become shorter since it was marked.
        start = min(self.first.char, n_chars) if place == self.first.place else 0
        end = min(self.last.char, n_chars) if place == self.last.place else n_chars
        return (start, end) if start < end else None


def selected_text(layout: ConversationLayout, selection: Selection) -> str:
    """Return what is marked, as plain text: list labels written out, messages a blank line apart."""
    first, last = (Spot(layout.clamped(end.place), end.char) for end in (selection.first, selection.last))
    selection = Selection(first, last)
    whole = range(first.place.message + 1, last.place.message)
    is_long = sum(len(layout.source(i)) for i in whole) > _READ_CHARS
    parts: list[str] = []
    place: Place | None = first.place
    while place is not None and place <= last.place:
        if is_long and place.message in whole:
            parts.append(f"\n\n{layout.source(place.message)}")
            place = Place(place.message + 1)
            continue
        view = layout.message(place.message).read(place.piece)[place.block]
        text = _block_text(layout, selection, place, view)
        is_message_start = place.piece == 0 and place.block == 0
        joint = "\n\n" if is_message_start else view.block.joint
        parts.append(text if place == first.place else joint + text)
        place = layout.next(place)
    return "".join(parts)


def _block_text(layout: ConversationLayout, selection: Selection, place: Place, view: BlockView) -> str:
    is_end = place in (selection.first.place, selection.last.place)
    label = "" if place == selection.first.place and selection.first.char > 0 else view.block.label()
    if not is_end or view.block.kind in (BlockKind.RULE, BlockKind.EMPTY):
        return label + view.block.text()
    document = layout.ensure(place).document
    assert document is not None
    n_chars = document.characterCount() - 1
    marked = selection.within(place, n_chars)
    if marked is None:
        return ""
    if marked == (0, n_chars):
        return label + view.block.text()
    cursor = QTextCursor(document)
    cursor.setPosition(marked[0])
    cursor.setPosition(marked[1], QTextCursor.MoveMode.KeepAnchor)
    return label + cursor.selection().toPlainText().replace("\u2028", "\n")
