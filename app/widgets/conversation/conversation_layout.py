"""All messages of a chat laid out: what stands where, and a place to hold on to while heights change.

Fifth step of a message's way to the screen. Only messages near the window are opened; of the others a height is
known or estimated, in a Fenwick tree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.models import MessageItem
from app.widgets.conversation.documents import DocumentBuilder
from app.widgets.conversation.heights import HeightTree
from app.widgets.conversation.message_layout import BlockView, MessageLayout, parts_of

NoteSource = Callable[[MessageItem], str]

_MAX_DOCUMENTS = 500
_MAX_OPEN = 200  # messages kept open; others are cut and read again when they are seen again


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A block: message, piece in it, block in that."""

    message: int
    piece: int = 0
    block: int = 0


@dataclass(frozen=True, slots=True)
class Anchor:
    """What stands at the top of the window.

    Attributes:
        offset: px from the block's top to the window's top.
    """

    place: Place
    offset: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A block that is in the window: `top` is px from the top of all, its gap included."""

    place: Place
    view: BlockView
    top: int


class ConversationLayout:
    """Places of all messages, in px from the top of the first.

    Attributes:
        column: px, width that text may have.
    """

    def __init__(self, builder: DocumentBuilder, note_of: NoteSource) -> None:
        self._builder = builder
        self._note_of = note_of
        self._items: Sequence[MessageItem] = ()
        self._tree = HeightTree()
        self._open: dict[int, MessageLayout] = {}
        self._sizes: list[tuple[int, int]] = []  # characters and line ends of each message when it was last seen
        self._recent: OrderedDict[BlockView, None] = (
            OrderedDict()
        )  # blocks with documents, the one used last at the end
        self._border = 0  # the first message that is in the context, where an earlier one is not
        self.column = 600

    @property
    def total(self) -> int:
        """Height of all, px."""
        return self._tree.total()

    @property
    def n_messages(self) -> int:
        """Number of messages."""
        return len(self._tree)

    def reset(self, items: Sequence[MessageItem]) -> None:
        """Lay out another chat."""
        self._items = items
        self._open.clear()
        self._recent.clear()
        self._sizes = [(len(item.text), item.text.count("\n")) for item in items]
        self._border = border_of(items)
        self._tree.assign(self._estimates())

    def set_column(self, column: int) -> None:
        """Wrap at another width."""
        if column != self.column:
            self.column = column
            for message in self._open.values():
                message.set_column(column)
            self._tree.assign(self._estimates())
            self._store_open()

    def refresh(self) -> None:
        """Fonts or colours have changed."""
        self._builder.refresh()
        for message in self._open.values():
            message.forget()
            message.set_column(self.column)
        self._tree.assign(self._estimates())
        self._store_open()

    def append(self, items: Sequence[MessageItem], i: int) -> None:
        """Take over a message inserted at `i`."""
        self._items = items
        if i != len(self._tree):
            self.reset(items)
            return
        self._tree.append(0)
        self._sizes.append((0, 0))
        self.message(i)

    def remove(self, items: Sequence[MessageItem], first: int, count: int) -> None:
        """Take over that messages were removed."""
        self._items = items
        if first + count != len(self._tree):
            self.reset(items)
            return
        self._tree.truncate(first)
        del self._sizes[first:]
        for i in [i for i in self._open if i >= first]:
            del self._open[i]

    def change(self, items: Sequence[MessageItem], i: int) -> None:
        """Take over a message that has changed; one that is not open is measured when it is seen."""
        self._items = items
        self._sizes[i] = len(items[i].text), items[i].text.count("\n")
        if i in self._open:
            self._open[i].set_item(items[i])
            self._open[i].set_note(self._note_of(items[i]))
            self._store_height(i)

    def move_border(self) -> None:
        """Find anew where the line stands that says what has left the context."""
        border = border_of(self._items)
        if border != self._border:
            self._border = border
            for i, message in self._open.items():
                message.has_border = i == border > 0
                self._store_height(i)

    def message(self, i: int) -> MessageLayout:
        """Return a message, opened."""
        if i not in self._open:
            message = MessageLayout(self._items[i], self._builder, self.column, partial(self._store_height, i))
            message.has_border = i == self._border > 0
            message.set_note(self._note_of(self._items[i]))
            self._open[i] = message
            self._store_height(i)
        return self._open[i]

    def source(self, i: int) -> str:
        """Return a message's text as it was written."""
        return self._items[i].text

    def scroll_sideways(self, place: Place, x: int) -> None:
        """Scroll a wide block, with all blocks of the same code, to px from its left edge."""
        views = self.message(place.message).read(place.piece)
        first, last = parts_of([view.block for view in views], place.block)
        for view in views[first : last + 1]:
            view.scroll_x = x

    def top_of_message(self, i: int) -> int:
        """Return where a message begins."""
        return self._tree.before(i)

    def top_of(self, place: Place) -> int:
        """Return where a block begins, its gap included."""
        return self._tree.before(place.message) + self.message(place.message).block_top(place.piece, place.block)

    def place_at(self, y: int) -> tuple[Place, int]:
        """Return the block at a place and px below its top, negative above the first block of a message."""
        i, rest = self._tree.find(max(y, 0))
        piece, block, offset = self.message(i).block_at(rest + min(y, 0))
        return Place(i, piece, block), offset

    def ensure(self, place: Place) -> BlockView:
        """Return a block that has its document and its exact height."""
        view = self.message(place.message).ensure(place.piece, place.block)
        self._recent[view] = None
        self._recent.move_to_end(view)
        if len(self._recent) > _MAX_DOCUMENTS:
            self._recent.popitem(last=False)[0].document = None
        return view

    def next(self, place: Place) -> Place | None:
        """Return the block after one, None after the last."""
        message = self.message(place.message)
        if place.block + 1 < len(message.read(place.piece)):
            return replace(place, block=place.block + 1)
        if place.piece + 1 < len(message.pieces):
            return Place(place.message, place.piece + 1)
        return Place(place.message + 1) if place.message + 1 < len(self._tree) else None

    def previous(self, place: Place) -> Place | None:
        """Return the block before one, None before the first."""
        if place.block > 0:
            return replace(place, block=place.block - 1)
        i, piece = place.message, place.piece - 1
        if piece < 0:
            i -= 1
            if i < 0:
                return None
            piece = len(self.message(i).pieces) - 1
        return Place(i, piece, len(self.message(i).read(piece)) - 1)

    def last_place(self) -> Place | None:
        """Return the last block, None in a chat without messages."""
        if not len(self._tree):
            return None
        i = len(self._tree) - 1
        piece = len(self.message(i).pieces) - 1
        return Place(i, piece, len(self.message(i).read(piece)) - 1)

    def clamped(self, place: Place) -> Place:
        """Return the place, or the nearest that still exists."""
        i = min(place.message, len(self._tree) - 1)
        message = self.message(i)
        piece = min(place.piece, len(message.pieces) - 1)
        return Place(i, piece, min(place.block, len(message.read(piece)) - 1))

    def shown(self, top: int, bottom: int) -> Iterator[Shown]:
        """Yield the blocks between two places, laid out, first to last."""
        if not len(self._tree):
            return
        place: Place | None = self.place_at(top)[0]
        y = self.top_of(place) if place else 0
        while place is not None and y < bottom:
            view = self.ensure(place)
            if y + view.height > top:
                yield Shown(place, view, y)
            after = self.next(place)
            if after is not None and after.message == place.message:
                y += view.height
            elif after is not None:
                y = self.top_of(after)
            place = after

    def settle(self, anchor: Anchor, above: int, below: int) -> None:
        """Lay out what is around an anchor, so that its surroundings no longer change height.

        Args:
            anchor: what stands at the window's top.
            above: px above it to lay out; below: px below it.
        """
        place: Place | None = anchor.place
        y = -anchor.offset
        while place is not None and y < below:
            y += self.ensure(place).height
            after = self.next(place)
            if after is not None and after.message != place.message:
                y += self.message(place.message).bottom + self.message(after.message).top
            place = after
        place = anchor.place
        y = anchor.offset
        while y < above and (before := self.previous(place)) is not None:
            y += self.ensure(before).height
            place = before
        self._close_far(anchor.place.message)

    def _close_far(self, i: int) -> None:
        if len(self._open) > _MAX_OPEN:
            by_distance = sorted(self._open, key=lambda j: abs(j - i))
            for j in by_distance[_MAX_OPEN // 2 :]:
                del self._open[j]

    def _store_height(self, i: int) -> None:
        if i in self._open:
            self._tree.set(i, self._open[i].height)

    def _store_open(self) -> None:
        for i, message in self._open.items():
            self._tree.set(i, message.height)

    def _estimates(self) -> list[int]:
        """Return an estimate of the height of each message, px."""
        line, least = self._builder.line_px, self._builder.line_px + self._builder.footer
        char = line * self._builder.average_px / max(self.column, 1)
        return [int(least + n_lines * line + n_chars * char) for n_chars, n_lines in self._sizes]


def border_of(items: Sequence[MessageItem]) -> int:
    """Return the first message that is in the context while the one before is not; 0 where there is none."""
    for i in range(len(items) - 1, 0, -1):
        if items[i - 1].is_out and not items[i].is_out:
            return i
    return 0
