"""The conversation view: what stays in place, what follows the end, what is copied, and how long it takes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QGuiApplication, QTextLine
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.models import MessageItem
from app.theme import ZOOM_STEPS, ThemeMode
from app.widgets.conversation import ConversationView
from app.widgets.conversation.blocks import BlockKind
from app.widgets.conversation.conversation_layout import Place, Shown
from app.widgets.conversation.selection import Selection, Spot, selected_text
from tests.app.view_help import REPLY, make_items, make_view, model_of


def shown_blocks(view: ConversationView) -> list[Shown]:
    top = view._geometry.top
    return list(view._layout.shown(top, top + view._position.height))


def top_text(view: ConversationView) -> tuple[str, int]:
    """Return the line of text at the window's top and where it begins in the window, px."""
    shown = next(s for s in shown_blocks(view) if s.view.block.kind == BlockKind.TEXT)
    rects = view._geometry.rects(shown)
    document = shown.view.document
    assert document is not None
    y = max(-rects.text.top(), 0)
    char = document.documentLayout().hitTest(QPointF(0, y + 1), Qt.HitTestAccuracy.FuzzyHit)
    word = document.toPlainText()[char : char + 12]
    return word, round(rects.text.top())


def click_point(view: ConversationView, place: Place, char: int) -> QPoint:
    """Return where a character stands in the window."""
    shown = Shown(place, view._layout.ensure(place), view._layout.top_of(place))
    document = shown.view.document
    assert document is not None
    block = document.findBlock(char)
    line = block.layout().lineForTextPosition(char - block.position())
    x = cursor_x(line, char - block.position())
    y = document.documentLayout().blockBoundingRect(block).top() + line.y() + line.height() / 2
    return (view._geometry.rects(shown).text.topLeft() + QPointF(x, y)).toPoint()


def cursor_x(line: QTextLine, char: int) -> float:
    x: object = line.cursorToX(char)  # with the position as well, which its types do not say
    return float(x[0] if isinstance(x, tuple) else str(x))


def test_opens_at_the_end(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(20))
    bar = view.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    assert shown_blocks(view)[-1].place.message == 19


def test_ten_thousand_messages_open_quickly(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(4))
    view.grab()
    started = time.thread_time()
    model_of(view).load(2, "Long", make_items(10_000))
    view.grab()
    assert time.thread_time() - started < 0.3
    started = time.thread_time()
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum() // 2)
    view.grab()
    assert time.thread_time() - started < 0.15


def test_only_messages_near_the_window_are_open(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(5_000))
    for share in range(0, 100, 4):
        view.verticalScrollBar().setValue(view.verticalScrollBar().maximum() * share // 100)
    assert len(view._layout._open) <= 230


def test_only_blocks_used_last_have_documents(qtbot: QtBot) -> None:
    text = "\n\n".join(f"Paragraph {i}." for i in range(3_000))
    view = make_view(qtbot, [MessageItem(1, "assistant", text)])
    bar = view.verticalScrollBar()
    for share in range(100):
        bar.setValue(bar.maximum() * share // 100)
        view.grab()
    message = view._layout.message(0)
    views = [block for piece in message.pieces for block in piece.blocks or ()]
    assert 10 < sum(block.document is not None for block in views) <= 500


def test_scrolling_up_moves_the_text_by_exactly_one_step(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(400))
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    for _ in range(40):
        before = {s.place: s.top - view._geometry.top for s in shown_blocks(view)}
        bar.setValue(bar.value() - 60)
        after = {s.place: s.top - view._geometry.top for s in shown_blocks(view)}
        common = before.keys() & after.keys()
        assert common
        assert {after[place] - before[place] for place in common} == {60}


def test_resize_keeps_the_line_at_the_top(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(i, "assistant", f"start{i} " + "many words here " * 120) for i in range(60)])
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2 + 137)
    word, _ = top_text(view)
    for width in (700, 520, 460, 640, 900):
        view.resize(width, 600)
    view.resize(900, 600)
    assert top_text(view)[0] == word


def test_zoom_and_theme_keep_the_message_at_the_top(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(100))
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 3)
    before = shown_blocks(view)[0].place
    view._theme.set_zoom(1.5)
    assert shown_blocks(view)[0].place == before
    view._theme.set_mode(ThemeMode.DARK)
    assert shown_blocks(view)[0].place == before
    view._theme.set_zoom(1.0)
    assert shown_blocks(view)[0].place == before


def test_streaming_follows_a_reader_at_the_end_only(qtbot: QtBot) -> None:
    view = make_view(qtbot, [*make_items(30), MessageItem(99, "assistant", "Begin.", "streaming")])
    model = model_of(view)
    bar = view.verticalScrollBar()
    for _ in range(5):
        model.append_text(99, "\n\nOne more paragraph.")
        view._on_frame_due()
    assert bar.value() == bar.maximum()
    bar.setValue(bar.maximum() - 400)
    before = [(s.place, s.top - view._geometry.top) for s in shown_blocks(view)][:3]
    for _ in range(20):
        model.append_text(99, "\n\nOne more paragraph.")
        view._on_frame_due()
    assert [(s.place, s.top - view._geometry.top) for s in shown_blocks(view)][:3] == before
    assert bar.value() < bar.maximum() - 400
    assert view._end_button.isVisible()
    view._end_button.click()
    assert bar.value() == bar.maximum()


def test_a_message_of_ones_own_brings_the_end_back(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(30))
    view.verticalScrollBar().setValue(0)
    model_of(view).append(MessageItem(500, "user", "And now?"))
    view._on_frame_due()
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()


def test_streamed_text_is_laid_out_as_if_it_had_come_at_once(qtbot: QtBot) -> None:
    text = (REPLY + "\n") * 2
    view = make_view(qtbot, [MessageItem(1, "user", "go"), MessageItem(2, "assistant", "", "streaming")])
    model = model_of(view)
    for at in range(0, len(text), 7):
        model.append_text(2, text[at : at + 7])
        view._on_frame_due()
    streamed = [v.block for i in range(len(view._layout.message(1).pieces)) for v in view._layout.message(1).read(i)]
    other = make_view(qtbot, [MessageItem(1, "user", "go"), MessageItem(2, "assistant", text, "streaming")])
    whole = [v.block for i in range(len(other._layout.message(1).pieces)) for v in other._layout.message(1).read(i)]
    assert streamed == whole
    assert view._layout.message(1).height == other._layout.message(1).height


def test_streaming_keeps_documents_of_blocks_that_are_done(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(2, "assistant", "First.\n\nSecond.\n\nThird", "streaming")])
    documents = [view._layout.ensure(Place(0, i)).document for i in range(3)]
    model_of(view).append_text(2, " grows")
    view._on_frame_due()
    assert [view._layout.ensure(Place(0, i)).document for i in range(2)] == documents[:2]
    assert view._layout.ensure(Place(0, 2)).document is not documents[2]


def test_a_frame_of_streaming_is_short(qtbot: QtBot) -> None:
    view = make_view(qtbot, [*make_items(20), MessageItem(99, "assistant", "", "streaming")])
    model = model_of(view)
    text = REPLY * 4
    costs = []
    for at in range(0, len(text), 28):
        model.append_text(99, text[at : at + 28])
        started = time.thread_time()
        view._on_frame_due()
        view.grab()
        costs.append(time.thread_time() - started)
    costs.sort()
    assert costs[len(costs) // 2] < 0.015
    assert costs[int(len(costs) * 0.95)] < 0.03


@pytest.mark.parametrize(
    "text",
    [
        "a" * 5_000_000,
        ">" * 10_000 + " x",
        "|a|b|\n|-|-|\n" + "|1|2|\n" * 900,
        "```py\n" + "x = 1\n" * 20_000 + "```",
        "a\u0301\u0302" * 40_000,
        "\u202e\u202dabc" * 20_000,
        "\u200b" * 100_000,
    ],
    ids=["unbroken", "quotes", "table", "code", "combining", "bidi", "zero width"],
)
def test_hostile_text_is_shown_quickly(qtbot: QtBot, text: str) -> None:
    view = make_view(qtbot, make_items(2))
    view.grab()
    started = time.thread_time()
    model_of(view).load(3, "x", [MessageItem(1, "user", "hi"), MessageItem(2, "assistant", text)])
    view.grab()
    assert time.thread_time() - started < 0.3
    started = time.thread_time()
    view.verticalScrollBar().setValue(60)
    view.grab()
    assert time.thread_time() - started < 0.2


def test_selection_across_messages_is_copied_as_text(qtbot: QtBot) -> None:
    items = [
        MessageItem(1, "user", "Hello there"),
        MessageItem(2, "assistant", "First *para*.\n\n1. one\n2. two\n\n```py\nx = 1\ny = 2\n```\n\nLast line."),
    ]
    view = make_view(qtbot, items)
    view.select_all()
    view.copy_selection()
    expected = "Hello there\n\nFirst para.\n\n1. one\n2. two\n\nx = 1\ny = 2\n\nLast line."
    assert QGuiApplication.clipboard().text() == expected


def test_dragging_selects_and_ctrl_c_copies(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "assistant", "Alpha beta gamma.\n\nDelta epsilon.")])
    start, end = click_point(view, Place(0, 0), 6), click_point(view, Place(0, 1), 5)
    QTest.mousePress(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, start)
    QTest.mouseMove(view.viewport(), end)
    view._drag_to(QPointF(end))
    QTest.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, end)
    QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "beta gamma.\n\nDelta"
    view.grab()


def test_two_clicks_mark_a_word_and_three_a_block(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "assistant", "Alpha beta gamma.")])
    QTest.mouseDClick(
        view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, click_point(view, Place(0), 8)
    )
    view.copy_selection()
    assert QGuiApplication.clipboard().text() == "beta"
    point = click_point(view, Place(0), 8)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, point)
    view.copy_selection()
    assert QGuiApplication.clipboard().text() == "Alpha beta gamma."


def test_a_long_selection_does_not_read_what_lies_between(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(2_000))
    started = time.thread_time()
    text = selected_text(view._layout, Selection(Spot(Place(0), 0), Spot(Place(1999), 3)))
    assert time.thread_time() - started < 0.3
    assert len(text) > 450_000


def test_links_open_only_after_the_click_says_where_they_go(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "assistant", "Read [this](https://example.org/x) please.")])
    point = click_point(view, Place(0), 7)
    with qtbot.waitSignal(view.link_clicked) as caught:
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, point)
    assert caught.args == ["https://example.org/x"]
    with qtbot.assertNotEmitted(view.link_clicked):
        QTest.mouseClick(
            view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, click_point(view, Place(0), 2)
        )


def test_the_copy_button_of_code_copies_all_of_it(qtbot: QtBot) -> None:
    code = "\n".join(f"line {i}" for i in range(90))
    view = make_view(qtbot, [MessageItem(1, "assistant", f"```text\n{code}\n```")], height=2400)
    shown = shown_blocks(view)[0]
    point = view._geometry.rects(shown).copy_button.center().toPoint()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, point)
    assert QGuiApplication.clipboard().text() == code
    assert view._copied == shown.place
    QGuiApplication.clipboard().clear()
    assert view.copy_last_code()
    assert QGuiApplication.clipboard().text() == code


def test_wide_code_scrolls_sideways(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "assistant", "```text\n" + "x" * 400 + "\n```")])
    shown = shown_blocks(view)[0]
    pos = view._geometry.rects(shown).text.center()
    assert view._scroll_sideways(pos, -200)
    assert shown.view.scroll_x == 200
    assert view._scroll_sideways(pos, -100_000)
    assert shown.view.scroll_x == pytest.approx(shown.view.text_width - view._geometry.rects(shown).text.width(), abs=1)


def test_code_is_coloured_and_stays_the_same_text(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "assistant", "```python\ndef f():\n    return 'x'  # note\n```")])
    shown = shown_blocks(view)[0]

    def is_coloured() -> None:
        document = shown.view.document
        assert document is not None
        assert document.begin().layout().formats()

    height = shown.view.height
    qtbot.waitUntil(lambda: view._colouring.is_complete, timeout=5_000)
    is_coloured()
    assert shown.view.height == height
    assert shown.view.document is not None
    assert shown.view.document.toPlainText() == "def f():\n    return 'x'  # note"


def test_what_left_the_context_is_grey_and_the_border_says_so(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(6))
    model = model_of(view)
    assert view._layout._border == 0
    model.mark_out(frozenset({1, 2}))
    view._on_frame_due()
    assert view._layout._border == 2
    assert view._layout.message(2).has_border
    document = view._layout.ensure(Place(0)).document
    assert document is not None
    colour = document.begin().begin().fragment().charFormat().foreground().color()
    assert colour == view._theme.colour("out")
    model.mark_out(frozenset())
    view._on_frame_due()
    assert not view._layout.message(2).has_border
    view.grab()


@pytest.mark.parametrize(
    ("state", "word"), [("queued", "Waiting"), ("stopped", "Stopped"), ("failed", "broke"), ("interrupted", "closed")]
)
def test_states_are_said_under_the_text(qtbot: QtBot, state: str, word: str) -> None:
    item = MessageItem(2, "assistant", "Some text.", state, error="It broke.")  # type: ignore[arg-type]
    view = make_view(qtbot, [MessageItem(1, "user", "x"), item])
    note = view._layout.message(1).note
    assert note is not None
    assert word in note.toPlainText()
    model_of(view).put(replace(item, state="done", error=""))
    view._on_frame_due()
    assert view._layout.message(1).note is None


def test_text_from_right_to_left_stays_in_its_bubble(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "user", "שלום לך"), MessageItem(2, "assistant", "שלום.")])
    bubble = view._geometry.bubble(0)
    document = view._layout.ensure(Place(0)).document
    assert document is not None
    line = document.begin().layout().lineAt(0)
    assert bubble.width() < 300
    assert line.naturalTextRect().right() <= bubble.width()
    reply = view._layout.ensure(Place(1)).document
    assert reply is not None
    assert reply.begin().layout().lineAt(0).naturalTextRect().right() == pytest.approx(760, abs=2)


def test_removing_messages_and_emptying(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(10))
    model_of(view).remove_from(4)
    assert view._layout.n_messages == 4
    view.grab()
    model_of(view).load(None, "", [])
    assert view._layout.n_messages == 0
    view.grab()
    QTest.mouseMove(view.viewport(), QPoint(50, 50))
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, QPoint(50, 50))
    view.select_all()
    view.copy_selection()


def test_the_keyboard_goes_from_message_to_message(qtbot: QtBot) -> None:
    view = make_view(qtbot, make_items(20))
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_Up, Qt.KeyboardModifier.ControlModifier)
    assert view._acting() == 19
    QTest.keyClick(view, Qt.Key.Key_Up, Qt.KeyboardModifier.ControlModifier)
    assert view._acting() == 18
    assert view._actions is not None
    assert view._actions.isVisible()
    view._actions.copy_requested.emit()
    assert QGuiApplication.clipboard().text() == "Question 18: what now?"
    QTest.keyClick(view, Qt.Key.Key_Home)
    assert view.verticalScrollBar().value() == 0
    QTest.keyClick(view, Qt.Key.Key_End)
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()


def test_replies_are_announced_when_they_end(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(QAccessible, "isActive", lambda: True)
    monkeypatch.setattr(QAccessible, "updateAccessibility", lambda event: said.append(event.message()))
    item = MessageItem(2, "assistant", "All done.", "streaming")
    view = make_view(qtbot, [MessageItem(1, "user", "x"), item])
    model_of(view).append_text(2, " Really.")
    assert said == []
    model_of(view).put(replace(item, text="All done. Really.", state="done"))
    assert said == ["All done. Really."]


def check_sound(view: ConversationView) -> None:
    """Heights must agree on all floors, and the window must lie inside the whole."""
    layout, position = view._layout, view._position
    for i, message in layout._open.items():
        for piece in message.pieces:
            assert piece.blocks is None or piece.height == sum(block.height for block in piece.blocks)
        assert message.body_height == sum(piece.height for piece in message.pieces)
        assert layout._tree[i] == message.height
    assert layout.n_messages == len(model_of(view).items())
    assert 0 <= position.value <= position.maximum
    assert view.verticalScrollBar().value() == position.value
    if position.is_following:
        assert position.value == position.maximum


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_events_keeps_the_layout_sound(qtbot: QtBot, seed: int) -> None:
    dice = random.Random(seed)
    view = make_view(qtbot, make_items(dice.choice([0, 1, 30])))
    model = model_of(view)
    lines = [
        "text *a* ",
        "\n\n",
        "- x\n",
        "```py\nx = 1\n",
        "```\n",
        "# h\n",
        "|a|b|\n|-|-|\n",
        "|1|2|\n" * 40,
        "> q\n",
    ]

    def append_text() -> None:
        if model.items():
            model.append_text(model.items()[-1].id, "".join(dice.choices(lines, k=4)))

    def insert() -> None:
        role = dice.choice(["user", "assistant", "system"])
        model.append(MessageItem(dice.randrange(1 << 30), role, "".join(dice.choices(lines, k=3))))  # type: ignore[arg-type]

    def change() -> None:
        if model.items():
            model.put(replace(dice.choice(model.items()), text=dice.choice(["", "new", REPLY]), state="stopped"))

    def mark_out() -> None:
        model.mark_out(frozenset(item.id for item in model.items()[: dice.randrange(4)]))

    def select() -> None:
        view.select_all()
        view.copy_selection()

    actions: list[Callable[[], object]] = [
        *(append_text, append_text, append_text, insert, change, mark_out, select, view._on_frame_due),
        lambda: view.resize(dice.randrange(300, 1000), dice.randrange(200, 700)),
        lambda: view.verticalScrollBar().setValue(dice.randrange(view.verticalScrollBar().maximum() + 1)),
        lambda: view._theme.set_zoom(dice.choice(ZOOM_STEPS)),
        lambda: model.remove_from(dice.randrange(len(model.items()) + 1)),
        lambda: QTest.mouseMove(view.viewport(), QPoint(dice.randrange(300), dice.randrange(300))),
        lambda: view.grab(),
    ]
    for _ in range(60):
        dice.choice(actions)()
        view._on_frame_due()
        check_sound(view)
    view._theme.set_zoom(1.0)
