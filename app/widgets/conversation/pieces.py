"""Cut Markdown into pieces that can be read on their own, so that a long message is only read where it is seen.

First step of a message's way to the screen. A piece ends where CommonMark closes every open container: at a line
that starts in the first column after a blank line, at a heading, around a fence. Lists are cut between their items.
Cutting depends only on what stands before, so text that streams in changes the last piece and adds new ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto

PLAIN_MESSAGE_CHARS = 200_000  # a message beyond this is shown as it was written
PLAIN_PIECE_CHARS = 16_000
PLAIN_CHUNK_CHARS = 4_000  # one document without breaks takes time that grows with its square
CODE_CHUNK_LINES = 40
CODE_LINE_CHARS = 2_000
TABLE_CHUNK_ROWS = 16
TABLE_PIECE_ROWS = 2 * TABLE_CHUNK_ROWS
NO_TABLE = (-1, -1)

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"(?:([-*+])|(\d{1,9})([.)]))(?=[ \t]|$)")
_HEADING = re.compile(r"#{1,6}(?:[ \t]|$)")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]{1,200}\]:[^\n]*", re.MULTILINE)


class PieceKind(Enum):
    """How a piece is read."""

    MARKDOWN = auto()
    FENCE = auto()
    PLAIN = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a message's source.

    Attributes:
        start, end: where it stands in the text.
        after_blank: a blank line stands before it.
        number: number of its list item, -1 where the piece does not continue or start a numbered list.
        in_list: it continues the list of the piece before.
        table: where the first piece of the table that it continues begins and ends; `NO_TABLE` where it does not.
    """

    kind: PieceKind
    start: int
    end: int
    after_blank: bool = False
    number: int = -1
    in_list: bool = False
    table: tuple[int, int] = NO_TABLE


def cut(text: str, first: Piece | None = None) -> list[Piece]:
    """Cut a message, or what follows from `first` (a piece cut before from the same beginning) on.

    Args:
        text: the message's source.
        first: where to begin; its text may have grown since.
    """
    if len(text) > PLAIN_MESSAGE_CHARS:
        return cut_plain(text, 0)
    return _Cutter(text, first).run()


def cut_verbatim(text: str) -> list[Piece]:
    """Cut what a person wrote: only fences are read as Markdown, the rest stays as it was typed."""
    if len(text) > PLAIN_MESSAGE_CHARS or "```" not in text:
        return cut_plain(text, 0)
    pieces: list[Piece] = []
    start = 0
    for fence in (piece for piece in _Cutter(text, None).run() if piece.kind == PieceKind.FENCE):
        pieces += [*_between(text, start, fence.start), fence]
        start = fence.end
    return pieces + _between(text, start, len(text))


def _between(text: str, start: int, end: int) -> list[Piece]:
    """Return what stands beside fences as plain pieces, without the blank lines at its ends."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip("\n"))
    pieces = cut_plain(text[: start + len(inner.strip("\n"))], start)
    return [replace(piece, after_blank=True) if i == 0 and start > 0 else piece for i, piece in enumerate(pieces)]


def cut_plain(text: str, start: int) -> list[Piece]:
    """Cut text that is shown as it was written, at line ends where there are any."""
    pieces = []
    while start < len(text):
        end = min(start + PLAIN_CHUNK_CHARS, len(text))
        if end < len(text):
            at_line = text.rfind("\n", start + 1, end)
            at_space = text.rfind(" ", end - 200, end)
            end = at_line + 1 if at_line > 0 else at_space + 1 if at_space > start else end
        pieces.append(Piece(PieceKind.PLAIN, start, end))
        start = end
    return pieces


def definitions(text: str) -> str:
    """Return the lines that define link targets, which pieces elsewhere may name."""
    return "\n".join(_DEFINITION.findall(text)) if "]:" in text else ""


class _Cutter:
    """One pass over the lines."""

    def __init__(self, text: str, first: Piece | None) -> None:
        self._text = text
        self._pieces: list[Piece] = []
        self._start = first.start if first else 0
        self._after_blank = first.after_blank if first else False
        self._number = first.number if first else -1
        self._in_list = first.in_list if first else False
        self._table = first.table if first else NO_TABLE
        self._n_rows = -1  # of the table that the piece is, without its heading; -1 where it is none
        self._n_lines = 0  # of the piece
        self._is_open = False  # the piece has a line with something on it
        self._is_fence = False  # the piece is a fence
        self._fence = ""  # the marker of the fence that the current line is in
        self._list_kind = ""  # the marker of the list that the piece is an item of

    def run(self) -> list[Piece]:
        pos, size = self._start, len(self._text)
        is_blank_before = must_cut = False
        while pos < size:
            end = self._text.find("\n", pos)
            end = size if end < 0 else end + 1
            line = self._text[pos:end]
            stripped = line.strip()
            if self._fence:
                if self._closes(stripped, line):
                    self._fence = ""
                    must_cut = self._is_fence
            elif not stripped:
                is_blank_before = True
            else:
                self._take(pos, line, is_blank_before, must_cut)
                must_cut = not self._fence and _HEADING.match(line) is not None
                is_blank_before = False
            pos = end
        if self._is_open:
            self._end_piece(size)
        return self._pieces

    def _closes(self, stripped: str, line: str) -> bool:
        is_indented = self._is_fence and len(line) - len(line.lstrip(" ")) > 3
        return stripped.startswith(self._fence) and not stripped.strip(self._fence[0]) and not is_indented

    def _take(self, pos: int, line: str, is_blank_before: bool, must_cut: bool) -> None:
        item = _ITEM.match(line)
        kind = (item.group(1) or item.group(3)) if item else ""
        is_flush = line[0] not in " \t"
        inner = line[item.end() :].lstrip() if item else line
        fence = _FENCE.match(inner.rstrip("\n"))
        is_fence = fence is not None and item is None and (is_flush or not self._list_kind)
        is_next_item = bool(kind) and kind == self._list_kind
        if not self._is_open:
            self._start = pos
            self._open(item, kind, is_fence)
        elif must_cut or is_fence or (is_flush and (is_blank_before or is_next_item or _HEADING.match(line))):
            self._end_piece(pos)
            self._table = NO_TABLE
            self._start, self._after_blank, self._in_list = pos, is_blank_before, is_next_item
            self._number = self._number + 1 if is_next_item and self._number >= 0 else -1
            self._open(item, kind, is_fence)
        elif self._n_rows >= TABLE_PIECE_ROWS and not is_blank_before:
            self._end_piece(pos)
            self._table = (self._start, pos) if self._table == NO_TABLE else self._table
            self._start, self._after_blank, self._in_list = pos, False, False
            self._open(item, kind, is_fence)
        self._count(pos, line, is_blank_before)
        if fence is not None:
            self._fence = fence.group(1)

    def _open(self, item: re.Match[str] | None, kind: str, is_fence: bool) -> None:
        self._is_open = True
        self._is_fence = is_fence
        self._list_kind = kind
        self._n_lines = 0
        self._n_rows = -1 if self._table == NO_TABLE else 0
        if item is not None and item.group(2) and self._number < 0:
            self._number = int(item.group(2))

    def _count(self, pos: int, line: str, is_blank_before: bool) -> None:
        """Count the lines of a piece, and its rows from the line on that makes it a table."""
        self._n_lines += 1
        if is_blank_before and self._n_lines > 1:
            self._n_rows = -1
        elif self._n_rows >= 0:
            self._n_rows += 1
        elif self._n_lines == 2 and not self._list_kind and "|" in self._text[self._start : pos]:
            self._n_rows = 0 if _TABLE_RULE.match(line.rstrip("\n")) else -1

    def _end_piece(self, end: int) -> None:
        if not self._is_fence and end - self._start > PLAIN_PIECE_CHARS:
            self._pieces += cut_plain(self._text[:end], self._start)
            return
        kind = PieceKind.FENCE if self._is_fence else PieceKind.MARKDOWN
        self._pieces.append(Piece(kind, self._start, end, self._after_blank, self._number, self._in_list, self._table))
