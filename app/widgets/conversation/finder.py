"""Finds a text in a conversation: its places in the blocks that are painted, and the next one from anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtGui import QTextCursor, QTextDocument

from app.widgets.conversation.conversation_layout import ConversationLayout, Place
from app.widgets.conversation.selection import Selection, Spot

MAX_IN_BLOCK = 500
_MARKS = str.maketrans("", "", "*_~`\\")  # what Markdown may write inside a word that is shown without it


class Finder:
    """Looks for one text, whatever its case.

    Attributes:
        needle: the text; "" for none.

    Thread: GUI thread.
    """

    def __init__(self, layout: ConversationLayout) -> None:
        self._layout = layout
        self.needle = ""

    def places(self, document: QTextDocument) -> list[tuple[int, int]]:
        """Return where the text stands in a block's document, as (first, end) of its characters."""
        found: list[tuple[int, int]] = []
        if not self.needle:
            return found
        cursor = document.find(self.needle, 0)
        while not cursor.isNull() and len(found) < MAX_IN_BLOCK:
            found.append((cursor.selectionStart(), cursor.selectionEnd()))
            cursor = document.find(self.needle, cursor)
        return found

    def step(self, start: Spot, *, is_forward: bool) -> Selection | None:
        """Return the next place behind a spot, or the one before it, round the ends; None where there is none."""
        for place in self._blocks_from(start.place, is_forward):
            places = self._places_at(place)
            for first, end in places if is_forward else reversed(places):
                is_beyond = first >= start.char if is_forward else first < start.char
                if place != start.place or is_beyond:
                    return Selection(Spot(place, first), Spot(place, end))
        return self._first_of(start.place, is_forward)

    def _first_of(self, place: Place, is_forward: bool) -> Selection | None:
        """Return the first place in the block that the search began in, or the last one: all others were seen."""
        places = self._places_at(place)
        if not places:
            return None
        first, end = places[0 if is_forward else -1]
        return Selection(Spot(place, first), Spot(place, end))

    def _places_at(self, place: Place) -> list[tuple[int, int]]:
        """Return the places in a block, which is laid out only where its text has some."""
        block = self._layout.message(place.message).read(place.piece)[place.block].block
        if self.needle.casefold() not in block.text().casefold():
            return []
        document = self._layout.ensure(place).document
        return self.places(document) if document is not None else []

    def _blocks_from(self, start: Place, is_forward: bool) -> Iterator[Place]:
        """Yield the block, and all others of messages that may have the text, in the order of reading or against it."""
        n, step = self._layout.n_messages, 1 if is_forward else -1
        own = self._blocks_of(start.message)
        i = own.index(start)
        yield from own[i:] if is_forward else own[i::-1]
        for k in range(1, n):
            message = (start.message + step * k) % n
            if self._may_have(message):
                yield from self._blocks_of(message)[::step]
        yield from own[:i] if is_forward else own[:i:-1]

    def _blocks_of(self, i: int) -> list[Place]:
        message = self._layout.message(i)
        return [Place(i, p, b) for p in range(len(message.pieces)) for b in range(len(message.read(p)))]

    def _may_have(self, i: int) -> bool:
        """Whether a message has the text as it was written, with or without marks of Markdown."""
        source, needle = self._layout.source(i).casefold(), self.needle.casefold()
        return needle in source or needle.translate(_MARKS) in source.translate(_MARKS)


def cursor_of(document: QTextDocument, first: int, end: int) -> QTextCursor:
    """Return a cursor over some characters."""
    cursor = QTextCursor(document)
    cursor.setPosition(first)
    cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
    return cursor
