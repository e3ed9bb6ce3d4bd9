"""Bring the colours of code into the documents that are in the window, a slice at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtGui import QTextCharFormat, QTextDocument, QTextLayout

from app.theme import Theme
from app.widgets.conversation.blocks import BlockKind
from app.widgets.conversation.conversation_layout import ConversationLayout, Shown
from app.widgets.conversation.highlight import Highlighter, LexerShelf, Span
from app.widgets.conversation.message_layout import code_of, parts_of
from app.widgets.conversation.pieces import CODE_CHUNK_LINES

_BUDGET_S = 0.005


class Colouring:
    """Colours code near the window.

    Attributes:
        is_complete: there was nothing left to do at the last call.
    """

    def __init__(self, theme: Theme, layout: ConversationLayout) -> None:
        self._theme = theme
        self._layout = layout
        self._shelf = LexerShelf()
        self.is_complete = True

    def go_on(self, shown: Iterable[Shown]) -> bool:
        """Colour for at most 5 ms; returns whether a block looks different now."""
        deadline = time.perf_counter() + _BUDGET_S
        self.is_complete = True
        has_changed = False
        for block in shown:
            if block.view.block.kind == BlockKind.CODE and block.view.block.language:
                has_changed |= self._colour(block, deadline)
        return has_changed

    def _colour(self, shown: Shown, deadline: float) -> bool:
        place, view = shown.place, shown.view
        message = self._layout.message(place.message)
        if view.document is None or message.item.is_out:
            return False
        blocks = [v.block for v in message.read(place.piece)]
        first, _ = parts_of(blocks, place.block)
        highlighters = message.pieces[place.piece].highlighters
        highlighter = highlighters.get(first)
        text = code_of(blocks, place.block)
        if highlighter is None or (highlighter.text != text and highlighter.may_restart()):
            highlighter = Highlighter(text, view.block.language, self._shelf, highlighter)
            highlighters[first] = highlighter
        left = deadline - time.perf_counter()
        if left > 0:
            highlighter.step(left)
        self.is_complete &= highlighter.is_done and highlighter.text == text
        start = (place.block - first) * CODE_CHUNK_LINES
        lines = highlighter.lines[start : start + CODE_CHUNK_LINES]
        state = (id(highlighter), len(lines), min(max(highlighter.n_done - start, 0), CODE_CHUNK_LINES))
        if state == view.colours_shown or not lines:
            return False
        view.colours_shown = state
        set_colours(view.document, lines, self._theme)
        return True


def set_colours(document: QTextDocument, lines: list[list[Span]], theme: Theme) -> None:
    """Colour the lines of a document, its text and its height unchanged."""
    formats: dict[str, QTextCharFormat] = {}
    block = document.begin()
    for spans in lines:
        if not block.isValid():
            break
        ranges = []
        for start, length, name in spans:
            if name not in formats:
                formats[name] = QTextCharFormat()
                formats[name].setForeground(theme.colour(name))
            span = QTextLayout.FormatRange()
            span.start, span.length, span.format = start, length, formats[name]
            ranges.append(span)
        block.layout().setFormats(ranges)
        block = block.next()
    document.markContentsDirty(0, document.characterCount())
