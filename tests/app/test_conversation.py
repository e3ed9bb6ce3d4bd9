from __future__ import annotations

from pytestqt.qtbot import QtBot

from app.models import ConversationModel, MessageItem


def test_text_is_appended_to_its_message_only(qtbot: QtBot) -> None:
    model = ConversationModel()
    model.load(7, "title", [MessageItem(1, "user", "hi"), MessageItem(2, "assistant", "", "streaming")])
    with qtbot.waitSignal(model.text_appended, check_params_cb=lambda i, delta: (i, delta) == (1, "yes")):
        model.append_text(2, "yes")
    model.append_text(99, "lost")
    assert [item.text for item in model.items()] == ["hi", "yes"]


def test_leaving_the_context_marks_and_unmarks(qtbot: QtBot) -> None:
    model = ConversationModel()
    model.load(7, "title", [MessageItem(i, "user", "x") for i in range(4)])
    model.mark_out(frozenset({0, 1}))
    assert [item.is_out for item in model.items()] == [True, True, False, False]
    changed: list[int] = []
    model.item_changed.connect(changed.append)
    model.mark_out(frozenset({1, 2}))
    assert [item.is_out for item in model.items()] == [False, True, True, False]
    assert changed == [0, 2]


def test_removal_and_new_ids(qtbot: QtBot) -> None:
    model = ConversationModel()
    model.load(None, "", [])
    for i in range(3):
        model.append(MessageItem(i, "user", str(i)))
    with qtbot.waitSignal(model.items_removed, check_params_cb=lambda first, n: (first, n) == (1, 2)):
        model.remove_from(1)
    assert model.item(2) is None
    model.append(MessageItem(2, "user", "again"))
    item = model.item(2)
    assert item is not None and item.text == "again"
    assert [item.id for item in model.items()] == [0, 2]
