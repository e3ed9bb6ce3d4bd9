"""Turn one block into one small QTextDocument.

Third step of a message's way to the screen. Documents are made when a block comes near the window and dropped when
it has left; nothing here keeps one.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextLength,
    QTextOption,
    QTextTable,
    QTextTableCell,
    QTextTableFormat,
)

from app.theme import GRID, LINE_HEIGHT_PERCENT, Theme
from app.widgets.conversation.blocks import Block, BlockKind, Cell, Gap, MarkKind, Run, Style

CODE_PADDING = 2 * GRID  # px, left and right of code
CODE_EDGE = 12  # px, above and below it
_GAPS = {Gap.NONE: 0, Gap.TIGHT: 4, Gap.NORMAL: 12, Gap.WIDE: 24}
_HEADING_SCALES = (1.0, 1.5, 1.3, 1.15, 1.0, 1.0, 1.0)
_QUOTE_INDENT = 2 * GRID
CELL_PADDING = 7  # px
_NARROW_CHARS = 14  # a column is not made narrower than this to fit a table into its room
_LINE_BREAK = "\u2028"


class DocumentBuilder:
    """Makes documents in the fonts and colours of the theme.

    Attributes:
        line_px, code_line_px: height of a line of text and of code.
        lead_px, code_lead_px: how much higher text is painted than Qt would put it.
        digit_px, average_px: width of a digit and of a usual letter in text.
        code_head: height of the row with the language and the copy button of code.
        footer: room below each message, where its actions appear.
        border: height of the line that says what has left the context.
    """

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self.refresh()

    def refresh(self) -> None:
        """Take over fonts and colours of the theme anew."""
        self._text_font = self._theme.text_font()
        self._code_font = self._theme.code_font()
        metrics = QFontMetricsF(self._text_font)
        self.line_px = self._text_font.pixelSize() * LINE_HEIGHT_PERCENT / 100
        self.code_line_px = self._code_font.pixelSize() * LINE_HEIGHT_PERCENT / 100
        self.code_head = self._theme.scaled(4 * GRID)
        self.footer = self._theme.scaled(4 * GRID) + 4
        self.border = self._theme.scaled(5 * GRID)
        self.digit_px = metrics.horizontalAdvance("0")
        self.average_px = metrics.averageCharWidth()
        # Qt puts the space between lines above each; half of it goes below, so that text stands in its middle.
        self.lead_px = max(self.line_px - metrics.height(), 0.0) / 2
        self.code_lead_px = max(self.code_line_px - QFontMetricsF(self._code_font).height(), 0.0) / 2

    def gap(self, block: Block) -> int:
        """Return the space above a block, in px."""
        return self._theme.scaled(_GAPS[block.gap])

    def indent(self, block: Block) -> int:
        """Return how far a block stands from the left edge of its column, in px."""
        return sum(self.mark_width(mark.kind, mark.width_chars) for mark in block.marks)

    def mark_width(self, kind: MarkKind, width_chars: int) -> int:
        """Return the width of one level of indentation, in px."""
        if kind == MarkKind.QUOTE:
            return _QUOTE_INDENT
        return round(max(self.digit_px * width_chars, GRID) + 1.5 * GRID)

    def build(self, block: Block, wrap_width: int, *, is_out: bool) -> QTextDocument:
        """Return a block as a document without margins.

        Args:
            block: the block.
            wrap_width: px; the columns of a table are made for it.
            is_out: its message has left the context and is greyed.
        """
        document = QTextDocument()
        document.setUndoRedoEnabled(False)
        document.setDocumentMargin(0)
        is_code = block.kind == BlockKind.CODE
        document.setDefaultFont(self._code_font if is_code else self._text_font)
        option = QTextOption()
        if is_code:
            option.setWrapMode(QTextOption.WrapMode.NoWrap)
            option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        else:
            option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        document.setDefaultTextOption(option)
        cursor = QTextCursor(document)
        cursor.setBlockFormat(self._block_format(self.code_line_px if is_code else self.line_px))
        if block.kind == BlockKind.TABLE:
            self._insert_table(cursor, block, wrap_width, is_out=is_out)
        elif is_code or block.kind == BlockKind.PLAIN:
            cursor.insertText(block.runs[0].text, self._format(Run(""), is_out))
        else:
            if block.kind == BlockKind.HEADING:
                cursor.setBlockFormat(self._block_format(self.line_px * _HEADING_SCALES[block.level]))
            for run in block.runs:
                cursor.insertText(run.text.replace("\n", _LINE_BREAK), self._format(run, is_out, block.level))
        return document

    def build_note(self, text: str, is_error: bool) -> QTextDocument:
        """Return a line under a message as a document."""
        document = QTextDocument()
        document.setDocumentMargin(0)
        document.setDefaultFont(self._theme.ui_font())
        char_format = QTextCharFormat()
        char_format.setForeground(self._theme.colour("danger" if is_error else "quiet"))
        QTextCursor(document).insertText(text, char_format)
        return document

    def _block_format(self, line_px: float) -> QTextBlockFormat:
        block_format = QTextBlockFormat()
        block_format.setLineHeight(line_px, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
        return block_format

    def _format(self, run: Run, is_out: bool, level: int = 0) -> QTextCharFormat:
        char_format = QTextCharFormat()
        colours = self._theme
        char_format.setForeground(colours.colour("out" if is_out else "text"))
        if level:
            font = QFont(self._text_font)
            font.setPixelSize(round(font.pixelSize() * _HEADING_SCALES[level]))
            font.setWeight(QFont.Weight.DemiBold)
            char_format.setFont(font)
        if Style.CODE in run.style:
            char_format.setFont(self._code_font)
            char_format.setBackground(colours.colour("code"))
        if Style.BOLD in run.style:
            char_format.setFontWeight(QFont.Weight.Bold)
        if Style.ITALIC in run.style:
            char_format.setFontItalic(True)
        if Style.STRIKE in run.style:
            char_format.setFontStrikeOut(True)
        if run.href:
            char_format.setAnchor(True)
            char_format.setAnchorHref(run.href)
            char_format.setFontUnderline(True)
            char_format.setUnderlineColor(colours.colour("out" if is_out else "accent"))
            if not is_out:
                char_format.setForeground(colours.colour("accent"))
        return char_format

    def _insert_table(self, cursor: QTextCursor, block: Block, wrap_width: int, *, is_out: bool) -> None:
        widths = self._column_widths(block, wrap_width)
        table_format = QTextTableFormat()
        table_format.setBorder(0)
        table_format.setCellPadding(CELL_PADDING)
        table_format.setCellSpacing(0)
        table_format.setColumnWidthConstraints([QTextLength(QTextLength.Type.FixedLength, w) for w in widths])
        table = cursor.insertTable(len(block.rows), len(widths), table_format)
        for i, row in enumerate(block.rows):
            for j, cell in enumerate(row):
                is_heading = block.is_first and i == 0
                self._fill_cell(table.cellAt(i, j), cell, block.aligns[j], is_heading=is_heading, is_out=is_out)

    def _column_widths(self, block: Block, wrap_width: int) -> list[float]:
        """Return the width of each column: what its longest cell needs, less where the table would be too wide."""
        wanted = [chars * self.average_px * 1.1 + 2 * CELL_PADDING + GRID for chars in block.columns]
        least = [min(w, _NARROW_CHARS * self.average_px + 2 * CELL_PADDING) for w in wanted]
        spare = wrap_width - sum(least)
        more = sum(wanted) - sum(least)
        if more <= spare or more == 0:
            return wanted
        share = max(spare, 0) / more
        return [low + (high - low) * share for low, high in zip(least, wanted, strict=True)]

    def _fill_cell(self, table_cell: QTextTableCell, cell: Cell, align: str, *, is_heading: bool, is_out: bool) -> None:
        cursor = table_cell.firstCursorPosition()
        block_format = self._block_format(self.line_px)
        block_format.setAlignment(_ALIGNS.get(align, Qt.AlignmentFlag.AlignLeft))
        cursor.setBlockFormat(block_format)
        for run in cell:
            char_format = self._format(run, is_out)
            if is_heading:
                char_format.setFontWeight(QFont.Weight.DemiBold)
            cursor.insertText(run.text.replace("\n", _LINE_BREAK), char_format)


_ALIGNS = {"right": Qt.AlignmentFlag.AlignRight, "center": Qt.AlignmentFlag.AlignHCenter}


def row_tops(document: QTextDocument) -> list[float]:
    """Return where each row of a table begins, px from the document's top."""
    table = document.rootFrame().childFrames()[0]
    assert isinstance(table, QTextTable)
    layout = document.documentLayout()
    return [
        layout.blockBoundingRect(table.cellAt(i, 0).firstCursorPosition().block()).top() - CELL_PADDING
        for i in range(table.rows())
    ]


def lay_out(document: QTextDocument, width: float) -> tuple[float, float]:
    """Wrap a document at a width and return its height and the width it really needs, in px."""
    document.setTextWidth(width)
    return document.size().height(), document.idealWidth()
