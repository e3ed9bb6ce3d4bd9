"""The parts that a message is made of once its Markdown is read: plain values, no Qt.

Stands between the Markdown reader, which makes them, and `documents`, which turns each into a small document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag, auto


class Style(Flag):
    """How a run of text is set."""

    NONE = 0
    BOLD = auto()
    ITALIC = auto()
    CODE = auto()
    STRIKE = auto()


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one style; `href` is where a link goes, empty for plain text."""

    text: str
    style: Style = Style.NONE
    href: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """One level of indentation left of a block: the bar of a quote, or a list item's label.

    Attributes:
        label: what stands in the margin of an item's first block ("•", "3."), empty for its other blocks.
        width_chars: room for the labels of the whole list, in digits.
    """

    kind: MarkKind
    label: str = ""
    width_chars: int = 1


class MarkKind(Enum):
    """What indents a block."""

    QUOTE = auto()
    ITEM = auto()


class Gap(Enum):
    """The space above a block."""

    NONE = auto()
    TIGHT = auto()  # between the items of a list without blank lines
    NORMAL = auto()
    WIDE = auto()  # above a heading


class BlockKind(Enum):
    """What a block is and so how it is painted."""

    TEXT = auto()
    HEADING = auto()
    CODE = auto()
    TABLE = auto()
    RULE = auto()
    PLAIN = auto()  # shown as it was written
    EMPTY = auto()  # of no height, for a piece with nothing to show


Cell = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One block: the unit that is laid out, painted and dropped on its own.

    Attributes:
        runs: its text; of CODE and PLAIN a single run with line ends in it.
        marks: indentation, outermost first.
        gap: space above it.
        joint: what stands between the block before and this one when both are copied.
        level: 1 to 6 for a HEADING.
        language: of CODE, as written after the fence.
        is_first, is_last: of the blocks that one piece of code or one table was cut into.
        rows: of a TABLE, the heading first in its first block.
        aligns: of a TABLE, "left", "right", "center" or "" for each column.
        columns: of a TABLE, characters in the longest cell of each column of the whole table.
    """

    kind: BlockKind
    runs: tuple[Run, ...] = ()
    marks: tuple[Mark, ...] = ()
    gap: Gap = Gap.NORMAL
    joint: str = "\n\n"
    level: int = 0
    language: str = ""
    is_first: bool = True
    is_last: bool = True
    rows: tuple[tuple[Cell, ...], ...] = field(default=())
    aligns: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()

    def text(self) -> str:
        """Return its text as copied, without the text of `marks`."""
        if self.kind == BlockKind.TABLE:
            return "\n".join("\t".join(runs_text(cell) for cell in row) for row in self.rows)
        if self.kind == BlockKind.RULE:
            return "---"
        return runs_text(self.runs)

    def label(self) -> str:
        """Return the labels in its margin as copied: "- ", "3. "."""
        labels = [mark.label for mark in self.marks if mark.label]
        return "".join("- " if label in BULLETS else f"{label} " for label in labels)


BULLETS = ("•", "◦", "▪")


def runs_text(runs: tuple[Run, ...]) -> str:
    """Return the text of runs without their style."""
    return "".join(run.text for run in runs)
