"""One message laid out: its pieces, their blocks, and where each stands.

Fourth step of a message's way to the screen. Pieces are read, and blocks made into documents, only when asked for;
until then their heights are estimated.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QTextDocument

from app.models import MessageItem
from app.widgets.conversation.blocks import Block, BlockKind
from app.widgets.conversation.documents import CODE_EDGE, CODE_PADDING, DocumentBuilder, lay_out
from app.widgets.conversation.heights import HeightTree
from app.widgets.conversation.highlight import Highlighter
from app.widgets.conversation.markdown import link_targets, read_piece
from app.widgets.conversation.pieces import Piece, PieceKind, cut, cut_verbatim

BUBBLE_PADDING_X, BUBBLE_PADDING_Y = 16, 10  # px, between the edge of the user's turn and its text
RULE = 17  # px
_BUBBLE_SHARE = 0.85  # of the column, the widest that the user's turn may be
_FITTED_CHARS = 1_000  # the user's turn up to this length is as wide as its text


class BlockView:
    """A block with its height, and its document while it is near the window.

    Attributes:
        height: px, with the gap above; an estimate until `is_exact`.
        text_width: px that the widest line needs; scroll_x: how far a wide block is scrolled.
        colours_shown: which state of the colours of code its document shows.
    """

    __slots__ = ("block", "colours_shown", "document", "height", "is_exact", "scroll_x", "text_width")

    def __init__(self, block: Block, height: int) -> None:
        self.block = block
        self.height = height
        self.document: QTextDocument | None = None
        self.is_exact = False
        self.text_width = 0.0
        self.scroll_x = 0
        self.colours_shown: tuple[int, ...] | None = None


class PieceView:
    """A piece with its height, and its blocks once it was read."""

    __slots__ = ("blocks", "height", "highlighters", "piece")

    def __init__(self, piece: Piece, height: int) -> None:
        self.piece = piece
        self.height = height
        self.blocks: list[BlockView] | None = None
        self.highlighters: dict[int, Highlighter] = {}  # by the first block of each code


class MessageLayout:
    """Where the parts of one message stand, in px from its top and in the inner column.

    Attributes:
        item: the message.
        pieces: in order; never empty.
        note: one line under the text ("Stopped", why it failed), as a document; None where there is none.
        has_border: the line between what left the context and what is in it stands above.
        text_width: px, width of the column that the text is wrapped in.
    """

    def __init__(self, item: MessageItem, builder: DocumentBuilder, column: int, on_height: Callable[[], None]) -> None:
        """Lay out a message.

        Args:
            item: the message.
            builder: makes its documents.
            column: px, the room for text.
            on_height: called when its height has become another because more of it is known.
        """
        self.item = item
        self._on_height = on_height
        self._builder = builder
        self.has_border = False
        self.note: QTextDocument | None = None
        self._note_text = ""
        self.note_height = 0
        self.pieces: list[PieceView] = []
        self._heights = HeightTree()  # of the pieces
        self._targets = link_targets(item.text) if item.role == "assistant" else {}
        self._set_column(column)
        self._cut()

    @property
    def is_bubble(self) -> bool:
        """Whether the message stands on a tint: all but replies do."""
        return self.item.role != "assistant"

    @property
    def top(self) -> int:
        """Px from the message's top to its first block."""
        return (self._builder.border if self.has_border else 0) + (BUBBLE_PADDING_Y if self.is_bubble else 0)

    @property
    def bottom(self) -> int:
        """Px from the end of the last block to the end of the message."""
        return self._builder.footer + self.note_height + (BUBBLE_PADDING_Y if self.is_bubble else 0)

    @property
    def body_height(self) -> int:
        """Height of the text, px."""
        return self._heights.total()

    @property
    def height(self) -> int:
        """Height of the whole message, px."""
        return self.top + self.body_height + self.bottom

    @property
    def bubble_width(self) -> int:
        """Width of the text of a bubble: of its longest line where the message is short, else of the column."""
        if self.item.role == "system" or len(self.item.text) > _FITTED_CHARS:
            return self.text_width
        views = [self.ensure(i, j) for i in range(len(self.pieces)) for j in range(len(self.read(i)))]
        rooms = [self.text_width - self._wrap_width(view.block) for view in views]
        widest = max((view.text_width + room for view, room in zip(views, rooms, strict=True)), default=0)
        width = min(round(widest) + 1, self.text_width)
        for view, room in zip(views, rooms, strict=True):
            # Text that runs from right to left begins at the right edge of its document.
            if view.document is not None and view.document.textWidth() != width - room:
                view.document.setTextWidth(width - room)
        return width

    def set_column(self, column: int) -> None:
        """Wrap at another width; heights are exact again when each block was asked for."""
        self._set_column(column)
        for piece in self.pieces:
            for block in piece.blocks or ():
                block.is_exact = False

    def forget(self) -> None:
        """Drop all documents: fonts or colours have changed."""
        for piece in self.pieces:
            for block in piece.blocks or ():
                block.document, block.is_exact = None, False
        note, self._note_text = self._note_text, ""
        self.set_note(note)

    def set_note(self, text: str) -> None:
        """Show one quiet line under the text."""
        if text != self._note_text:
            self._note_text = text
            self.note = self._builder.build_note(text, self.item.state == "failed") if text else None
            self._lay_out_note()

    def set_item(self, item: MessageItem) -> None:
        """Take over a changed message; what is the same as before keeps its documents."""
        old, self.item = self.item, item
        if old.is_out != item.is_out:
            self.forget()
        if old.text == item.text:
            return
        if item.role != "assistant" or not item.text.startswith(old.text):
            self._targets = link_targets(item.text) if item.role == "assistant" else {}
            self._cut()
            return
        if "]:" in item.text[max(len(old.text) - 200, 0) :]:
            self._targets = link_targets(item.text)
        self._cut_on()

    def read(self, i: int) -> list[BlockView]:
        """Return the blocks of a piece; reads it where that was not done."""
        piece = self.pieces[i]
        if piece.blocks is None:
            self._read_into(piece, [])
            self._heights.set(i, piece.height)
            self._on_height()
        assert piece.blocks is not None
        return piece.blocks

    def ensure(self, i: int, j: int) -> BlockView:
        """Return a block that has its document and its exact height."""
        view = self.read(i)[j]
        if view.document is None:
            view.document = self._builder.build(view.block, self._wrap_width(view.block), is_out=self.item.is_out)
            view.colours_shown = None
            if view.is_exact:
                lay_out(view.document, self._wrap_width(view.block))
        if not view.is_exact:
            self._measure(i, view, is_first=i == 0 and j == 0)
            self._on_height()
        return view

    def block_top(self, i: int, j: int) -> int:
        """Return px from the message's top to the top of a block, its gap included."""
        blocks = self.pieces[i].blocks or []
        return self.top + self._heights.before(i) + sum(b.height for b in blocks[:j])

    def block_at(self, y: int) -> tuple[int, int, int]:
        """Return (piece, block, px below its top) at a place below the message's top; reads that piece."""
        i, rest = self._heights.find(max(y - self.top, 0))
        y = rest + min(y - self.top, 0)
        blocks = self.read(i)
        j = 0
        while j + 1 < len(blocks) and y >= blocks[j].height:
            y -= blocks[j].height
            j += 1
        return i, j, y

    def gap(self, i: int, j: int) -> int:
        """Return the space above a block, none above the first of the message."""
        return 0 if i == 0 and j == 0 else self._builder.gap(self.read(i)[j].block)

    def text_offset(self, i: int, j: int) -> int:
        """Return px from the top of a block to the top of its document."""
        block = self.read(i)[j].block
        return self.gap(i, j) + (self._builder.code_head if block.kind == BlockKind.CODE and block.is_first else 0)

    def _set_column(self, column: int) -> None:
        self.column = column
        share = _BUBBLE_SHARE if self.item.role == "user" else 1.0
        self.text_width = round(column * share) - 2 * BUBBLE_PADDING_X if self.is_bubble else column
        self._lay_out_note()

    def _lay_out_note(self) -> None:
        self.note_height = round(lay_out(self.note, self.column)[0]) + 8 if self.note else 0

    def _wrap_width(self, block: Block) -> int:
        width = self.text_width - self._builder.indent(block)
        return max(width - 2 * CODE_PADDING if block.kind == BlockKind.CODE else width, 40)

    def _cut(self) -> None:
        text = self.item.text
        pieces = cut(text) if self.item.role == "assistant" else cut_verbatim(text)
        self.pieces = [self._piece_view(p) for p in pieces] or [self._piece_view(Piece(PieceKind.MARKDOWN, 0, 0))]
        self._heights.assign([view.height for view in self.pieces])

    def _cut_on(self) -> None:
        first = len(self.pieces) - 1
        while first > 0 and self.pieces[first].piece.kind == PieceKind.PLAIN:
            first -= 1
        old = self.pieces[first:]
        new = cut(self.item.text, old[0].piece)
        if not new or new[0].start != old[0].piece.start:
            self._cut()  # it has become too long to be read as Markdown
            return
        views = [self._piece_view(piece) for piece in new]
        for view, before in zip(views, old, strict=False):
            if view.piece == before.piece:
                view.blocks, view.height, view.highlighters = before.blocks, before.height, before.highlighters
            elif view.piece.start == before.piece.start and before.blocks is not None:
                self._read_into(view, before.blocks)
                view.highlighters = before.highlighters
        self.pieces[first:] = views
        self._heights.truncate(first)
        for view in views:
            self._heights.append(view.height)

    def _read_into(self, view: PieceView, old: list[BlockView]) -> None:
        """Read a piece; blocks equal to old ones at the same place keep their documents."""
        blocks = read_piece(self.item.text, view.piece, self._targets)
        views = []
        for j, block in enumerate(blocks):
            if j < len(old) and old[j].block == block:
                views.append(old[j])
            else:
                views.append(BlockView(block, self._estimate(block.text(), block)))
                if j < len(old):
                    views[-1].scroll_x = old[j].scroll_x
        view.blocks = views
        view.height = sum(b.height for b in views)

    def _piece_view(self, piece: Piece) -> PieceView:
        return PieceView(piece, self._estimate(self.item.text[piece.start : piece.end], None))

    def _estimate(self, text: str, block: Block | None) -> int:
        if block is not None and block.kind == BlockKind.CODE:
            return round((text.count("\n") + 1) * self._builder.code_line_px) + self._builder.code_head
        n_lines = text.count("\n") + 1 + len(text) * self._builder.average_px / self.text_width
        return round(n_lines * self._builder.line_px)

    def _measure(self, i: int, view: BlockView, *, is_first: bool) -> None:
        assert view.document is not None
        block = view.block
        height, view.text_width = lay_out(view.document, self._wrap_width(block))
        if block.kind == BlockKind.CODE:
            height += (self._builder.code_head if block.is_first else 0) + (CODE_EDGE if block.is_last else 0)
        elif block.kind in (BlockKind.RULE, BlockKind.EMPTY):
            height = RULE if block.kind == BlockKind.RULE else 0
        elif block.kind == BlockKind.TABLE and view.text_width > self._wrap_width(block):
            height = lay_out(view.document, view.text_width)[0] + CODE_EDGE
        outer = round(height) + (0 if is_first else self._builder.gap(block))
        self.pieces[i].height += outer - view.height
        self._heights.set(i, self.pieces[i].height)
        view.height, view.is_exact = outer, True


def last_code(message: MessageLayout) -> str | None:
    """Return the text of a message's last code, None where it has none."""
    for i in reversed(range(len(message.pieces))):
        blocks = [view.block for view in message.read(i)]
        ends = [j for j, block in enumerate(blocks) if block.kind == BlockKind.CODE and block.is_last]
        if ends:
            return code_of(blocks, ends[-1])
    return None


def links_of(message: MessageLayout) -> list[str]:
    """Return where the links of a message go, in order and each once; of what was read so far."""
    views = [view for piece in message.pieces for view in piece.blocks or ()]
    runs = [
        run for view in views for run in (*view.block.runs, *(r for row in view.block.rows for c in row for r in c))
    ]
    return list(dict.fromkeys(run.href for run in runs if run.href))


def code_of(blocks: list[Block], j: int) -> str:
    """Return the whole code that block `j` of a piece is a part of."""
    first, last = parts_of(blocks, j)
    return "\n".join(block.text() for block in blocks[first : last + 1])


def parts_of(blocks: list[Block], j: int) -> tuple[int, int]:
    """Return the first and the last block of the code or table that block `j` of a piece is a part of."""
    first = last = j
    while first > 0 and not blocks[first].is_first:
        first -= 1
    while last + 1 < len(blocks) and not blocks[last].is_last:
        last += 1
    return first, last
