"""Markdown to blocks: what is read, what stays text, and that hostile text costs little."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.widgets.conversation.blocks import Block, BlockKind, Gap, MarkKind, Style, runs_text
from app.widgets.conversation.markdown import LinkTargets, link_targets, read_piece
from app.widgets.conversation.pieces import PLAIN_CHUNK_CHARS, Piece, PieceKind, cut, cut_plain, cut_verbatim


def read(text: str) -> list[Block]:
    targets = link_targets(text)
    return [block for piece in cut(text) for block in read_piece(text, piece, targets)]


def texts(text: str) -> list[str]:
    return [block.text() for block in read(text)]


def test_paragraph_keeps_lines_and_styles() -> None:
    (block,) = read("one *two* **three** ~~four~~ `five`\nsix")
    assert block.text() == "one two three four five\nsix"
    styles = {run.text: run.style for run in block.runs}
    assert styles["two"] == Style.ITALIC
    assert styles["three"] == Style.BOLD
    assert styles["four"] == Style.STRIKE
    assert styles["five"] == Style.CODE


def test_html_stays_text() -> None:
    assert texts("<script>alert(1)</script> <b>x</b>") == ["<script>alert(1)</script> <b>x</b>"]
    assert texts("<div>\n\n<img src=x onerror=y>\n\n</div>") == ["<div>", "<img src=x onerror=y>", "</div>"]


def test_images_become_links() -> None:
    (block,) = read("![a cat](https://example.org/cat.png)")
    assert [run.href for run in block.runs if run.href] == ["https://example.org/cat.png"]
    assert "a cat" in block.text()


def test_bare_addresses_become_links_without_the_full_stop() -> None:
    (block,) = read("See https://example.org/a_(b)?c=d. Then **https://x.y/z**!")
    assert [run.href for run in block.runs if run.href] == ["https://example.org/a_(b)?c=d", "https://x.y/z"]
    assert block.text() == "See https://example.org/a_(b)?c=d. Then https://x.y/z!"


def test_link_targets_from_anywhere_in_the_message() -> None:
    block = read("Look at [this][one].\n\nMore.\n\n[one]: https://example.org")[0]
    assert [run.href for run in block.runs if run.href] == ["https://example.org"]


def test_lists_are_cut_between_items_and_numbered_on() -> None:
    text = "3. a\n4. b\n   - c\n\n     d\n5. e\n"
    assert len(cut(text)) == 3
    blocks = read(text)
    assert [block.label() for block in blocks] == ["3. ", "4. ", "- ", "", "5. "]
    assert [len(block.marks) for block in blocks] == [1, 1, 2, 2, 1]
    assert blocks[1].gap == Gap.TIGHT


def test_ones_count_up_as_in_one_list() -> None:
    assert [block.label() for block in read("1. a\n1. b\n1. c")] == ["1. ", "2. ", "3. "]


def test_task_lists_have_boxes() -> None:
    assert texts("- [ ] to do\n- [x] done") == ["☐ to do", "☑ done"]


def test_fence_in_a_list_does_not_swallow_what_follows() -> None:
    blocks = read("- ```py\n  x = 1\n\n  y = 2\n  ```\n\nAfter it.\n")
    assert [block.kind for block in blocks] == [BlockKind.CODE, BlockKind.TEXT]
    assert blocks[0].text() == "x = 1\n\ny = 2"
    assert blocks[0].marks[0].kind == MarkKind.ITEM


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("```py\nx\n```", "x"),
        ("```py\nx", "x"),
        ("```py\nx\n\n", "x\n"),
        ("~~~\n```\n~~~", "```"),
        ("````\n```\n````", "```"),
        ("  ```\n    x\n  ```", "  x"),
        ("```", ""),
    ],
)
def test_fences(source: str, code: str) -> None:
    (block,) = read(source)
    assert block.kind == BlockKind.CODE
    assert block.text() == code


def test_text_after_a_fence_is_text() -> None:
    blocks = read("```c\nint x;\n```\nafter\n# Heading\nbelow")
    assert [block.kind.name for block in blocks] == ["CODE", "TEXT", "HEADING", "TEXT"]
    assert blocks[0].language == "c"


def test_long_code_is_cut_into_blocks_and_joined_again() -> None:
    code = "\n".join(f"line {i}" for i in range(100))
    blocks = read(f"```\n{code}\n```")
    assert len(blocks) == 3
    assert [b.is_first for b in blocks] == [True, False, False]
    assert [b.is_last for b in blocks] == [False, False, True]
    assert "\n".join(b.text() for b in blocks) == code


def test_tables() -> None:
    (table,) = read("| a | b |\n|---|--:|\n| 1 | `2` |\n| 3 |\n")
    assert table.text() == "a\tb\n1\t2\n3\t"
    assert table.aligns == ("", "right")


def test_long_tables_are_cut_and_keep_their_columns() -> None:
    text = "|a|b|\n|-|-:|\n" + "".join(f"|{'x' * (i % 7)}|{i}|\n" for i in range(100)) + "\nafter\n"
    assert len(cut(text)) == 5
    blocks = read(text)
    assert [block.kind for block in blocks] == [BlockKind.TABLE] * (len(blocks) - 1) + [BlockKind.TEXT]
    assert len({block.columns for block in blocks[:-1]}) == 1
    assert [block.is_first for block in blocks[:-1]] == [True] + [False] * (len(blocks) - 2)
    rows = [row for block in blocks[:-1] for row in block.rows]
    assert len(rows) == 101
    assert [runs_text(row[1]) for row in rows[1:]] == [str(i) for i in range(100)]


def test_quotes_are_marks() -> None:
    blocks = read("> a\n>\n> > b\n\nc")
    assert [[mark.kind for mark in block.marks] for block in blocks] == [
        [MarkKind.QUOTE],
        [MarkKind.QUOTE, MarkKind.QUOTE],
        [],
    ]


def test_a_persons_text_is_shown_as_typed() -> None:
    text = "__init__ and *this*\n    indented\n\n```py\nx = 1\n```\n\nlast"
    pieces = cut_verbatim(text)
    assert [piece.kind for piece in pieces] == [PieceKind.PLAIN, PieceKind.FENCE, PieceKind.PLAIN]
    blocks = [block for piece in pieces for block in read_piece(text, piece, {})]
    assert blocks[0].text().startswith("__init__ and *this*\n    indented")
    assert blocks[1].kind == BlockKind.CODE
    assert blocks[0].text() == "__init__ and *this*\n    indented"
    assert (blocks[2].text(), blocks[2].gap, blocks[2].joint) == ("last", Gap.NORMAL, "\n\n")


def test_plain_chunks_cover_the_text() -> None:
    text = "word " * 3000 + "\n" + "x" * 9000
    pieces = cut_plain(text, 0)
    assert "".join(text[p.start : p.end] for p in pieces) == text
    assert max(p.end - p.start for p in pieces) <= PLAIN_CHUNK_CHARS


TRAPS = {
    "5 MB without a break": "a" * 5_000_000,
    "5 MB of words": "word " * 1_000_000,
    "nested quotes": ">" * 10_000 + " x",
    "nested quotes with spaces": "> " * 10_000 + "x",
    "nested lists": "".join("  " * i + "- x\n" for i in range(300)),
    "emphasis": "*a **b " * 20_000,
    "brackets": "[" * 100_000,
    "links": "[a](b" * 20_000,
    "images": "![" * 50_000,
    "ticks": "`a``" * 30_000,
    "underscores": "_" * 50_000,
    "wide table": "|a" * 3000 + "|\n" + "|-" * 3000 + "|\n" + "|b" * 3000 + "|\n",
    "long table": "|a|b|\n|-|-|\n" + "|1|2|\n" * 900,
    "open fence": "```\n" + "x\n" * 50_000,
    "entities": "&amp;" * 30_000,
    "definitions": "[a]: b\n" * 20_000,
    "backslashes": "\\" * 100_000,
    "addresses": "http://" * 20_000,
    "tabs": "\t" * 100_000,
    "nul": "\0" * 10_000,
}


def cost(text: str, piece: Piece, targets: LinkTargets) -> float:
    """Return the seconds that reading a piece takes, the better of two tries: other work may come in between."""
    costs = []
    for _ in range(2):
        started = time.thread_time()
        read_piece(text, piece, targets)
        costs.append(time.thread_time() - started)
    return min(costs)


@pytest.mark.parametrize("name", TRAPS)
def test_traps_are_cheap_at_a_time(name: str) -> None:
    text = TRAPS[name]
    read("warm *up* | a |")
    started = time.thread_time()
    targets = link_targets(text)
    pieces = cut(text)
    assert time.thread_time() - started < 0.25, "to cut"
    worst = max((cost(text, piece, targets) for piece in [*pieces[:20], *pieces[-20:]]), default=0.0)
    assert worst < 0.15, f"{worst:.3f} s for one piece"


LINES = ["# h", "text", "*a*", "**", "`", "```", "~~~", "- x", "  - y", "1. z", "7) q", "> ", "|a|b|", "|-|-|", "---"]
LINES += ["|x|\n" * 40]
LINES += ["", "", "    i", "[a](b)", "[a]: b", "\t", "<b>", "\\", "![", "===", "- ```", "  ```", "* * *", "\u202e", "é"]
MARKDOWN = st.lists(st.sampled_from(LINES), max_size=24).map("\n".join)


@given(MARKDOWN)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_is_read(text: str) -> None:
    pieces = cut(text)
    assert all(a.end <= b.start for a, b in pairwise(pieces))
    assert not "".join(text[a.end : b.start] for a, b in pairwise(pieces)).strip()
    blocks = read(text)
    assert not any("\r" in block.text() for block in blocks)


@given(MARKDOWN, st.integers(0, 200))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_cutting_on_from_the_last_piece_is_cutting_all(text: str, at: int) -> None:
    before = cut(text[:at])
    if before:
        assert before[:-1] + cut(text, before[-1]) == cut(text)
