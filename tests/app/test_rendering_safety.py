"""Whatever a model writes is painted: nothing raises, nothing holds the window up, nothing is taken for HTML."""

from __future__ import annotations

import random
import time

import pytest
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.models import MessageItem
from app.widgets.conversation import ConversationView
from app.widgets.conversation.blocks import Block
from app.widgets.conversation.markdown import link_targets, read_piece
from app.widgets.conversation.pieces import cut
from tests.app.view_help import make_view, model_of
from tests.fuzz import mutated

BUDGET_S = 0.1
"""CPU of the GUI thread at a time."""

CONSTRUCTS = {
    "atx heading": ("# Title #", ["Title"]),
    "seven marks": ("####### no heading", ["####### no heading"]),
    "setext heading": ("Title\n===", ["Title"]),
    "rule, not a list": ("* * *", ["---"]),
    "indented code": ("    a\n      b", ["a\n  b"]),
    "tilde fence": ("~~~ py\na\n```\n~~~", ["a\n```"]),
    "open fence": ("```\na\n\nb", ["a\n\nb"]),
    "lazy quote": ("> a\nb", ["a\nb"]),
    "quote in item": ("- > a\n- b", ["a", "b"]),
    "item with two paragraphs": ("1. a\n\n   b", ["a", "b"]),
    "escapes": (r"\*a\* \# \[b\]", ["*a* # [b]"]),
    "entities": ("&amp; &copy; &#35; &nope;", ["& © # &nope;"]),
    "code span": ("`` a`b `` `c\\`", ["a`b c\\"]),
    "emphasis in words": ("snake_case_name and a*b*c", ["snake_case_name and abc"]),
    "nested emphasis": ("***a** b*", ["a b"]),
    "inline link": ('[a](<b c> "t") [d](e(f))', ["a d"]),
    "reference link": ("[a][B]\n\n[b]: /c 'd'", ["a", ""]),
    "link in link": ("[a [b](c)](d)", ["[a b](d)"]),
    "autolink": ("<https://a.b> <x@y.z>", ["https://a.b x@y.z"]),
    "image": ("![a](b.png)", ["▧ a"]),
    "html block": ("<div>\n*a*\n</div>", ["<div>\na\n</div>"]),
    "html inline": ("a <b onclick=c>d</b>", ["a <b onclick=c>d</b>"]),
    "comment": ("<!-- a -->", ["<!-- a -->"]),
    "hard break": ("a  \nb\\\nc", ["a\nb\nc"]),
    "tab": ("\ta", ["a"]),
    "empty": ("", []),
    "table": ("|a|b|\n|-|:-:|\n|1|2|", ["a\tb\n1\t2"]),
    "half a table": ("|a|b|\n|-|", ["|a|b|\n|-|"]),
}

FLOODS = {
    "nested quotes": ">" * 10_000 + " x",
    "quotes over lines": "\n".join(">" * (i % 40) + " x" for i in range(2_000)),
    "unclosed fence": "```python\n" + "x = (1\n" * 4_000,
    "unclosed formulas": "$a_{" * 5_000,
    "unclosed formula lines": "$$\n\\frac{1}{" * 3_000,
    "overrides": "\u202e\u2066abc\u202d\u2067" * 3_000,
    "zero width": "a\u200b\u200d\ufeff\u2060" * 20_000,
    "combining": "a" + "\u0301\u0489\u20dd" * 6_000,
    "combining in words": ("z" + "\u0336" * 50 + " ") * 1_000,
    "no spaces": "x" * 1_000_000,
    "emoji": "👩\u200d👩\u200d👧\u200d👦" * 5_000,
    "emphasis": "*a **b " * 5_000,
    "brackets": "[" * 20_000,
    "backticks": "".join("`" * i + " " for i in range(300)),
    "links": "[a](b) " * 5_000,
    "definitions": "".join(f"[a{i}]: /b\n" for i in range(3_000)),
    "entities": "&#x1F600;&lt;" * 5_000,
    "controls": "".join(map(chr, range(32))) * 500,
    "lone surrogates": "\ud800a\udfff" * 1_000,
    "line separators": "a\u2028b\u2029c\x85d\x0b\x0c" * 2_000,
    "wide table": "|" + "a|" * 900 + "\n|" + "-|" * 900 + "\n|" + "1|" * 900 + "\n",
    "long table": "|a|b|\n|-|-|\n" + "|1|2|\n" * 3_000,
    "lists": "".join("  " * (i % 30) + "- x\n" for i in range(2_000)),
    "rules": "***\n" * 3_000,
    "headings": "# a\n" * 3_000,
}


def read(text: str) -> list[Block]:
    targets = link_targets(text)
    return [block for piece in cut(text) for block in read_piece(text, piece, targets)]


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs_are_read_as_markdown_says(name: str) -> None:
    source, texts = CONSTRUCTS[name]
    assert [block.text() for block in read(source)] == texts


def paint_all(view: ConversationView, n_steps: int) -> float:
    """Scroll through a conversation and paint; returns the most CPU that one step took, seconds."""
    worst = 0.0
    bar = view.verticalScrollBar()
    for step in range(n_steps + 1):
        began = time.thread_time()
        bar.setValue(bar.maximum() * (n_steps - step) // n_steps)
        view.viewport().grab()
        worst = max(worst, time.thread_time() - began)
        QApplication.processEvents()
    return worst


@pytest.mark.parametrize("name", FLOODS)
def test_floods_hold_nothing_up(name: str, qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "user", "x")], 700, 500)
    paint_all(view, 1)
    text = FLOODS[name]
    for role in ("assistant", "user"):
        began = time.thread_time()
        model_of(view).load(2, "A chat", [MessageItem(1, role, text)])
        view.viewport().grab()
        assert time.thread_time() - began < BUDGET_S, role
        assert paint_all(view, 6) < BUDGET_S, role


def test_a_thousand_mutated_texts_are_painted(qtbot: QtBot) -> None:
    rng = random.Random(7)
    seed = "\n\n".join(source for source, _ in CONSTRUCTS.values()).encode()
    texts = []
    for _ in range(1_000):
        start = rng.randrange(len(seed) - 300)
        texts.append(mutated(seed[start : start + 300], rng).decode("utf-8", "replace"))
    view = make_view(qtbot, [], 700, 500)
    worst = 0.0
    for i in range(0, len(texts), 25):
        items = [MessageItem(j + 1, "assistant", text) for j, text in enumerate(texts[i : i + 25])]
        model_of(view).load(i + 1, "A chat", items)
        worst = max(worst, paint_all(view, 8))
    assert worst < BUDGET_S


def test_nothing_painted_is_html_or_reaches_out(qtbot: QtBot) -> None:
    text = "<img src='http://a/b.png'><script>x</script> ![p](http://a/b.png) [j](javascript:x) <a href='c'>d</a>"
    view = make_view(qtbot, [MessageItem(1, "assistant", text)])
    paint_all(view, 1)
    documents = [
        block.document
        for piece in view._layout.message(0).pieces
        for block in piece.blocks or ()
        if isinstance(block.document, QTextDocument)
    ]
    shown = "".join(document.toPlainText() for document in documents)
    assert shown == text.replace("![p](http://a/b.png)", "▧ p")
    assert all("<img" not in document.toHtml() for document in documents)
