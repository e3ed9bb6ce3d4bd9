"""Find in a chat: the places are shown and gone to in order, round the ends, in text, code and tables."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.models import MessageItem
from app.widgets.conversation import ConversationView
from app.widgets.conversation.selection import selected_text
from tests.app.desk import Desk
from tests.app.view_help import make_items, make_view

SHIFT = Qt.KeyboardModifier.ShiftModifier
CHAT = [
    MessageItem(1, "user", "A needle here 😀 and a NEEDLE there"),
    MessageItem(2, "assistant", "Text **nee**dle.\n\n```\nneedle = 1\n```\n\n| a | b |\n|---|---|\n| x | needle |\n"),
    MessageItem(3, "user", "nothing"),
]


def at(view: ConversationView) -> tuple[int, int, int, int, str]:
    selection = view._pointer.selection
    assert selection is not None
    spot = selection.first
    text = selected_text(view._layout, selection)
    return (spot.place.message, spot.place.piece, spot.place.block, spot.char, text)


def test_steps_go_through_all_places_and_round_the_ends(qtbot: QtBot) -> None:
    view = make_view(qtbot, CHAT)
    view._position.scroll_to(0)
    assert view.find_text("needle")
    seen = [at(view)]
    for _ in range(5):
        assert view.find_step(1)
        seen.append(at(view))
    assert [s[0] for s in seen] == [0, 0, 1, 1, 1, 0]
    assert [s[4] for s in seen] == ["needle", "NEEDLE", "needle", "needle", "needle", "needle"]
    assert seen[5] == seen[0] and seen[0][3] == 2
    back = []
    for _ in range(5):
        assert view.find_step(-1)
        back.append(at(view))
    assert back == seen[4::-1]
    assert not view.find_text("absent")
    assert not view.find_step(1)


def test_an_empty_chat_has_nothing(qtbot: QtBot) -> None:
    view = make_view(qtbot, [])
    assert not view.find_text("a")
    assert not view.find_step(-1)
    assert not view.find_text("")


def test_places_are_painted_until_the_search_is_over(qtbot: QtBot) -> None:
    view = make_view(qtbot, CHAT)
    before = view.grab().toImage()
    view.find_text("nothing")
    view._pointer.clear()
    assert view.grab().toImage() != before
    view.find_text("")
    assert view.grab().toImage() == before


def test_a_place_far_away_is_brought_into_the_window(qtbot: QtBot) -> None:
    items = make_items(10_000)
    items[3] = MessageItem(4, "assistant", "word\n\n" * 300 + "the hidden pearl\n")
    view = make_view(qtbot, items)
    began = time.thread_time()
    assert view.find_text("pearl")
    assert time.thread_time() - began < 1
    place = at(view)
    assert (place[0], place[4]) == (3, "pearl")
    selection = view._pointer.selection
    assert selection is not None
    assert 0 <= view._layout.top_of(selection.first.place) - view._position.top < view._position.height


def test_the_end_of_a_very_long_message_is_found_quickly(qtbot: QtBot) -> None:
    view = make_view(qtbot, [MessageItem(1, "assistant", "word " * 400_000 + "pearl"), *make_items(2)])
    view._position.go_to_message(0)
    began = time.thread_time()
    assert view.find_text("PEARL")
    assert time.thread_time() - began < 0.5
    assert at(view)[4] == "pearl"


def test_the_bar_opens_steps_and_closes(desk: Desk) -> None:
    desk.write("needle one needle")
    desk.answer("a needle")
    actions, bar = desk.window._actions, desk.window.find_bar
    actions.action("find").trigger()
    assert bar.isVisible() and bar._edit.hasFocus()
    QTest.keyClicks(bar._edit, "needle")
    first = at(desk.window._view)
    QTest.keyClick(bar._edit, Qt.Key.Key_Return)
    assert at(desk.window._view) != first
    QTest.keyClick(bar._edit, Qt.Key.Key_Return, SHIFT)
    assert at(desk.window._view) == first
    QTest.keyClicks(bar._edit, "x")
    assert bar._label.text() == "Not found"
    QTest.keyClick(bar._edit, Qt.Key.Key_Escape)
    assert bar.isHidden() and desk.window._composer._edit.hasFocus()
    assert desk.window._view._finder.needle == ""
    actions.action("find_next").trigger()
    assert bar.isVisible()
