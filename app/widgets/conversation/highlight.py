"""Colour code: which characters of each line are keywords, strings and so on, found a slice at a time.

Works beside the way of a message to the screen: code is shown at once, its colours follow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

MAX_CHARS = 100_000  # code beyond this stays plain

Span = tuple[int, int, str]
"""First character in its line, number of characters, and the name of a colour of the theme."""


class LexerShelf:
    """Loads lexers on a thread of their own, since importing one may take longer than a frame.

    Thread: GUI thread; only `_load` runs elsewhere, and hands over by one assignment into a dict.
    """

    def __init__(self) -> None:
        self._lexers: dict[str, Lexer | None] = {}
        self._asked: set[str] = set()

    def is_ready(self, language: str) -> bool:
        """Whether a language's lexer was looked for; starts to look where that was not done."""
        if language in self._lexers:
            return True
        if language not in self._asked:
            self._asked.add(language)
            Thread(target=self._load, args=(language,), name="lexer", daemon=True).start()
        return False

    def lexer(self, language: str) -> Lexer | None:
        """Return a lexer, None for a language that has none."""
        return self._lexers.get(language)

    def _load(self, language: str) -> None:
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound

        try:
            self._lexers[language] = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        except ClassNotFound:
            self._lexers[language] = None


class Highlighter:
    """The colours of one piece of code.

    Attributes:
        text: the code.
        lines: spans of the lines done so far, taken over from what stood there before where they are not.
        n_done: lines that are done.
        is_done: all are.
    """

    def __init__(self, text: str, language: str, shelf: LexerShelf, before: Highlighter | None = None) -> None:
        self.text = text
        self.lines: list[list[Span]] = list(before.lines[:-1]) if before is not None else []
        self.n_done = 0
        self.is_done = not language or len(text) > MAX_CHARS
        self.ended_at = 0.0
        self.cost_s = 0.0
        self._language = language
        self._shelf = shelf
        self._tokens: Iterator[tuple[int, _TokenType, str]] | None = None
        self._line: list[Span] = []
        self._column = 0

    def step(self, budget_s: float) -> bool:
        """Go on for a while; returns whether there are new colours."""
        if self.is_done or not self._shelf.is_ready(self._language):
            return False
        started = time.perf_counter()
        if self._tokens is None:
            lexer = self._shelf.lexer(self._language)
            if lexer is None:
                self.is_done = True
                return False
            self._tokens = iter(lexer.get_tokens_unprocessed(self.text))
        n_before = self.n_done
        for _, kind, value in self._tokens:
            self._take(value, colour_of(kind))
            if time.perf_counter() - started > budget_s:
                break
        else:
            self._end_line()
            del self.lines[self.n_done :]
            self.is_done = True
            self.ended_at = time.perf_counter()
        self.cost_s += time.perf_counter() - started
        return self.n_done != n_before

    def may_restart(self) -> bool:
        """Whether colouring grown code anew leaves time for other things."""
        return self.is_done and time.perf_counter() - self.ended_at > 3 * self.cost_s

    def _take(self, value: str, colour: str) -> None:
        first, *others = value.split("\n")
        self._add(first, colour)
        for part in others:
            self._end_line()
            self._add(part, colour)

    def _add(self, part: str, colour: str) -> None:
        if part and colour:
            self._line.append((self._column, len(part), colour))
        self._column += len(part)

    def _end_line(self) -> None:
        self.lines[self.n_done : self.n_done + 1] = [self._line]
        self.n_done += 1
        self._line, self._column = [], 0


def colour_of(kind: _TokenType) -> str:
    """Return the name of the theme's colour for a kind of token, empty for plain text."""
    names = str(kind).split(".")[1:]
    for n in range(len(names), 0, -1):
        colour = _COLOURS.get(".".join(names[:n]))
        if colour is not None:
            return colour
    return ""


_COLOURS = {
    "Keyword": "code_keyword",
    "Keyword.Type": "code_type",
    "Operator.Word": "code_keyword",
    "Literal.String": "code_string",
    "Literal.Number": "code_number",
    "Literal": "code_number",
    "Comment": "code_comment",
    "Comment.Preproc": "code_keyword",
    "Name.Function": "code_name",
    "Name.Decorator": "code_name",
    "Name.Tag": "code_keyword",
    "Name.Attribute": "code_name",
    "Name.Class": "code_type",
    "Name.Builtin": "code_type",
    "Name.Exception": "code_type",
    "Generic.Heading": "code_name",
    "Generic.Inserted": "code_string",
    "Generic.Deleted": "code_number",
}
