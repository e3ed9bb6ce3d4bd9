"""Read one piece of a message into blocks.

Second step of a message's way to the screen. markdown-it-py reads; containers are flattened, so that each paragraph
of a list or quote is a block with marks for its margin. Raw HTML stays text, images become links and are never
fetched, and what would cost too much is shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING

from app.widgets.conversation.blocks import BULLETS, Block, BlockKind, Cell, Gap, Mark, MarkKind, Run, Style, runs_text
from app.widgets.conversation.pieces import (
    CODE_CHUNK_LINES,
    CODE_LINE_CHARS,
    NO_TABLE,
    PLAIN_CHUNK_CHARS,
    PLAIN_PIECE_CHARS,
    TABLE_CHUNK_ROWS,
    Piece,
    PieceKind,
    definitions,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_NESTING = 20
MAX_CELLS = 2_000
MAX_COLUMNS = 100  # Qt lays out 900 columns of two rows in 0.15 s
_MAX_MARKERS = 1_500  # of emphasis and links in one piece, whose pairing takes time that grows with its square

_URL = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]}*_]")
_MARKERS = re.compile(r"[*_~\[\]`]")


LinkTargets = MutableMapping[str, object]


def link_targets(text: str) -> LinkTargets:
    """Return the targets that a message defines for its links ("[name]: https://…"), wherever they stand."""
    targets: LinkTargets = {}
    found = definitions(text)
    if found and len(found) < PLAIN_PIECE_CHARS:
        _reader().parse(found, targets)
    return targets


def read_piece(text: str, piece: Piece, targets: LinkTargets) -> list[Block]:
    """Return the blocks of a piece.

    Args:
        text: the whole message.
        piece: the part to read.
        targets: of links, from `link_targets`.
    """
    source = text[piece.start : piece.end]
    if piece.kind == PieceKind.FENCE:
        return read_fence(source)
    if piece.kind == PieceKind.PLAIN and piece.after_blank:
        first, *others = plain(source, "\n\n")
        return [replace(first, gap=Gap.NORMAL), *others]
    if piece.kind == PieceKind.PLAIN or len(_MARKERS.findall(source)) > _MAX_MARKERS:
        return plain(source, "\n" if text[: piece.start].endswith("\n") else "")
    columns: tuple[int, ...] = ()
    if piece.table != NO_TABLE:
        head = text[piece.table[0] : piece.table[1]]
        columns = _columns_of(head)
        source = "".join(head.splitlines(keepends=True)[:2]) + source
    blocks = _Flattener(piece, columns).read(_reader().parse(source, targets))
    if blocks is None:
        return plain(source, "\n\n")
    if not blocks:
        return [Block(BlockKind.EMPTY, gap=Gap.NONE, joint="")]
    if piece.in_list and not piece.after_blank:
        blocks[0] = replace(blocks[0], gap=Gap.TIGHT, joint="\n")
    return blocks


def read_fence(source: str) -> list[Block]:
    """Return a fence as blocks of at most `CODE_CHUNK_LINES` lines."""
    lines = source.rstrip().split("\n")
    head = lines[0]
    opening = head.lstrip(" ")
    indent = len(head) - len(opening)
    marker = opening[: len(opening) - len(opening.lstrip(opening[0]))]
    language = (opening[len(marker) :].strip().split() or [""])[0]
    last = lines[-1].strip()
    is_closed = len(lines) > 1 and last.startswith(marker) and not last.strip(marker[0])
    body = lines[1:-1] if is_closed else source.removesuffix("\n").split("\n")[1:]
    if indent:
        body = [line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in body]
    return code_blocks("\n".join(body), language)


def code_blocks(text: str, language: str, marks: tuple[Mark, ...] = (), gap: Gap = Gap.NORMAL) -> list[Block]:
    """Return code as blocks of at most `CODE_CHUNK_LINES` lines, very long lines broken."""
    lines = []
    for line in text.replace("\r", "").replace("\t", "    ").split("\n"):
        lines += [line[i : i + CODE_LINE_CHARS] for i in range(0, max(len(line), 1), CODE_LINE_CHARS)]
    blocks = []
    for i in range(0, len(lines), CODE_CHUNK_LINES):
        run = Run("\n".join(lines[i : i + CODE_CHUNK_LINES]), Style.CODE)
        is_first, is_last = i == 0, i + CODE_CHUNK_LINES >= len(lines)
        blocks.append(
            Block(
                BlockKind.CODE,
                (run,),
                marks if is_first else tuple(replace(mark, label="") for mark in marks),
                gap if is_first else Gap.NONE,
                "\n\n" if is_first else "\n",
                language=language,
                is_first=is_first,
                is_last=is_last,
            )
        )
    return blocks


def table_blocks(rows: list[tuple[Cell, ...]], aligns: tuple[str, ...], columns: tuple[int, ...] = ()) -> list[Block]:
    """Return a table as blocks of at most `TABLE_CHUNK_ROWS` rows.

    Args:
        rows: the heading first, unless `columns` are given.
        aligns: of each column.
        columns: widths that the first piece of this table has; empty for a table that begins here.
    """
    begins = not columns
    columns = columns or tuple(max(_cell_chars(row[j]) for row in rows) for j in range(len(rows[0])))
    return [
        Block(
            BlockKind.TABLE,
            gap=Gap.NORMAL if i == 0 and begins else Gap.NONE,
            joint="\n\n" if i == 0 and begins else "\n",
            is_first=i == 0 and begins,
            is_last=i + TABLE_CHUNK_ROWS >= len(rows),
            rows=tuple(rows[i : i + TABLE_CHUNK_ROWS]),
            aligns=aligns,
            columns=columns,
        )
        for i in range(0, len(rows), TABLE_CHUNK_ROWS)
    ]


@lru_cache(maxsize=32)
def _columns_of(head: str) -> tuple[int, ...]:
    """Return the widths that the first piece of a table has."""
    blocks = _Flattener(Piece(PieceKind.MARKDOWN, 0, len(head)), ()).read(_reader().parse(head, {})) or []
    return next((block.columns for block in blocks if block.kind == BlockKind.TABLE), ())


def _cell_chars(cell: Cell) -> int:
    """Return the length of a cell's longest line, letters of East Asian scripts counted twice."""
    lines = runs_text(cell).split("\n")
    return max(len(line) + sum("\u1100" <= c <= "\ufaff" for c in line) for line in lines)


def plain(source: str, joint: str) -> list[Block]:
    """Return text as it was written, in chunks that are quick to lay out."""
    text = source.removesuffix("\n").replace("\r", "")
    chunks = [text[i : i + PLAIN_CHUNK_CHARS] for i in range(0, max(len(text), 1), PLAIN_CHUNK_CHARS)]
    return [
        Block(BlockKind.PLAIN, (Run(chunk),), gap=Gap.NONE, joint=joint if i == 0 else "")
        for i, chunk in enumerate(chunks)
    ]


def warm_up() -> None:
    """Import the reader on a thread of its own, so that no reply has to wait for that."""
    Thread(target=_reader, name="markdown", daemon=True).start()


@lru_cache(maxsize=1)
def _reader() -> MarkdownIt:
    # Imported at the first message, not at the first frame.
    from markdown_it import MarkdownIt

    # Deep nesting is recognised by its level and shown as text; the reader itself would drop what is too deep.
    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": 3 * MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable(["html_block", "html_inline"])


@dataclass(slots=True)
class _List:
    """A list that is open while its tokens are walked."""

    number: int  # of the next item, -1 for bullets
    bullet: str
    width_chars: int


@dataclass(slots=True)
class _Flattener:
    """Walks the tokens of one piece and keeps what is open around them."""

    piece: Piece
    columns: tuple[int, ...]  # of the table that the piece continues; empty where it does not
    marks: list[Mark] = field(default_factory=list)
    lists: list[_List] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    is_tight: bool = False

    def read(self, tokens: list[Token]) -> list[Block] | None:
        """Return the blocks, or None for what is nested too deep or has too many cells or columns."""
        if any(token.level > 2 * MAX_NESTING for token in tokens):
            return None
        if sum(token.type in ("td_open", "th_open") for token in tokens) > MAX_CELLS:
            return None
        if _widest_row(tokens) > MAX_COLUMNS:
            return None
        i = 0
        while i < len(tokens):
            if tokens[i].type == "table_open":
                i = self._table(tokens, i)
            else:
                self._token(tokens, i)
            i += 1
        return self.blocks

    def _token(self, tokens: list[Token], i: int) -> None:
        token = tokens[i]
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            self._open_list(token, tokens[i + 1 :])
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self.lists.pop()
        elif kind == "list_item_open":
            self._open_item()
        elif kind == "blockquote_open":
            self.marks.append(Mark(MarkKind.QUOTE))
        elif kind in ("list_item_close", "blockquote_close"):
            self.marks.pop()
        elif kind == "paragraph_open":
            self.is_tight = token.hidden
        elif kind == "heading_open":
            self._text(BlockKind.HEADING, tokens[i + 1], int(token.tag[1]))
        elif kind == "inline" and tokens[i - 1].type == "paragraph_open":
            self._text(BlockKind.TEXT, token, 0)
        elif kind in ("fence", "code_block"):
            language = (token.info.split() or [""])[0]
            self._add(code_blocks(token.content.removesuffix("\n"), language, tuple(self.marks), self._gap()))
        elif kind == "hr":
            self._add([Block(BlockKind.RULE, marks=tuple(self.marks))])

    def _open_list(self, token: Token, rest: list[Token]) -> None:
        bullet = BULLETS[min(len(self.lists), len(BULLETS) - 1)]
        if token.type == "bullet_list_open":
            self.lists.append(_List(-1, bullet, 1))
            return
        start = int(token.attrs.get("start", 1))
        if not self.lists and self.piece.number >= 0:
            start = self.piece.number
        n_items = sum(t.type == "list_item_open" and t.level == token.level + 1 for t in rest)
        self.lists.append(_List(start, "", max(len(str(start + n_items)), 2) + 1))

    def _open_item(self) -> None:
        top = self.lists[-1]
        label = top.bullet if top.number < 0 else f"{top.number}."
        self.marks.append(Mark(MarkKind.ITEM, label, top.width_chars))
        if top.number >= 0:
            top.number += 1

    def _gap(self) -> Gap:
        return Gap.TIGHT if self.is_tight and self.lists and self.blocks else Gap.NORMAL

    def _text(self, kind: BlockKind, inline: Token, level: int) -> None:
        runs = list(_runs(inline.children or []))
        if kind == BlockKind.TEXT and self.marks and self.marks[-1].kind == MarkKind.ITEM and self.marks[-1].label:
            runs = _with_task_box(runs)
        gap = Gap.WIDE if kind == BlockKind.HEADING else self._gap()
        joint = "\n" if gap == Gap.TIGHT else "\n\n"
        self._add(
            Block(kind, part, tuple(self.marks), gap if i == 0 else Gap.NONE, joint if i == 0 else "", level)
            for i, part in enumerate(_cut_runs(runs))
        )

    def _add(self, blocks: Iterator[Block] | list[Block]) -> None:
        for block in blocks:
            self.blocks.append(replace(block, marks=tuple(self.marks)))
            # A label stands beside the first block of its item only.
            self.marks = [replace(mark, label="") for mark in self.marks]

    def _table(self, tokens: list[Token], i: int) -> int:
        rows: list[tuple[Cell, ...]] = []
        row: list[Cell] = []
        aligns: list[str] = []
        while tokens[i].type != "table_close":
            token = tokens[i]
            if token.type == "tr_open":
                row = []
            elif token.type == "tr_close":
                rows.append(tuple(row))
            elif token.type == "th_open":
                style = str(token.attrs.get("style", ""))
                aligns.append(style.rpartition(":")[2])
            elif token.type == "inline":
                row.append(tuple(_runs(token.children or [])))
            i += 1
        if self.columns and not self.blocks:
            self._add(table_blocks(rows[1:], tuple(aligns), self.columns))
        else:
            self._add(table_blocks(rows, tuple(aligns)))
        return i


def _widest_row(tokens: list[Token]) -> int:
    """Return the cells of the widest row of all tables, 0 where there is none."""
    widest = n_cells = 0
    for token in tokens:
        n_cells = 0 if token.type == "tr_open" else n_cells + (token.type in ("td_open", "th_open"))
        widest = max(widest, n_cells)
    return widest


_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


def _runs(children: list[Token]) -> Iterator[Run]:
    """Yield the styled text of a line, neighbours of one style joined."""
    style = Style.NONE
    href = ""
    held = Run("")
    for token in children:
        name, _, edge = token.type.rpartition("_")
        if name in _STYLES:
            style = style | _STYLES[name] if edge == "open" else style & ~_STYLES[name]
            continue
        if name == "link":
            href = str(token.attrs.get("href", "")) if edge == "open" else ""
            continue
        for run in _leaf(token, style, href):
            if run.style == held.style and run.href == held.href:
                held = replace(held, text=held.text + run.text)
            else:
                if held.text:
                    yield held
                held = run
    if held.text:
        yield held


def _leaf(token: Token, style: Style, href: str) -> Iterator[Run]:
    if token.type == "code_inline":
        yield Run(token.content, style | Style.CODE, href)
    elif token.type in ("softbreak", "hardbreak"):
        yield Run("\n", style, href)
    elif token.type == "image":
        source = str(token.attrs.get("src", ""))
        yield Run(f"▧ {token.content or source}", style, href or source)
    elif href:
        yield Run(token.content, style, href)
    else:
        pos = 0
        for match in _URL.finditer(token.content):
            yield Run(token.content[pos : match.start()], style)
            yield Run(match.group(), style, match.group())
            pos = match.end()
        yield Run(token.content[pos:], style)


def _with_task_box(runs: list[Run]) -> list[Run]:
    """Return the runs with a box for "[ ]" or "[x]" at their start."""
    for written, box in (("[ ] ", "☐ "), ("[x] ", "☑ "), ("[X] ", "☑ ")):
        if runs and runs[0].text.startswith(written) and runs[0].style == Style.NONE:
            return [replace(runs[0], text=box + runs[0].text[len(written) :]), *runs[1:]]
    return runs


def _cut_runs(runs: list[Run]) -> Iterator[tuple[Run, ...]]:
    """Yield the runs in groups of at most `PLAIN_CHUNK_CHARS` characters, cut at spaces where there are any."""
    group: list[Run] = []
    room = PLAIN_CHUNK_CHARS
    for run in runs:
        text = run.text
        while len(text) > room:
            at = text.rfind(" ", max(room - 200, 0), room) + 1 or room
            yield (*group, replace(run, text=text[:at]))
            group, text, room = [], text[at:], PLAIN_CHUNK_CHARS
        group.append(replace(run, text=text))
        room -= len(text)
    yield tuple(group)
