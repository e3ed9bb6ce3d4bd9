from __future__ import annotations

import random

from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from app.models import ChatListModel, ChatRow


def test_rows_stand_newest_first(qtbot: QtBot) -> None:
    model = ChatListModel()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.set_rows([ChatRow(1, "a", 10.0), ChatRow(2, "b", 30.0), ChatRow(3, "c", 20.0)])
    assert [row.chat_id for row in model.rows()] == [2, 3, 1]
    model.put(ChatRow(1, "a", 40.0))
    assert [row.chat_id for row in model.rows()] == [1, 2, 3]
    model.put(ChatRow(4, "d", 25.0, is_generating=True))
    assert [row.chat_id for row in model.rows()] == [1, 2, 4, 3]
    assert model.index(2).data(ChatListModel.GeneratingRole) is True
    assert model.index(2).data(ChatListModel.TitleRole) == "d"
    assert model.remove(2) == ChatRow(2, "b", 30.0)
    assert model.remove(2) is None
    assert tester is not None


def test_any_series_of_changes_keeps_the_order(qtbot: QtBot) -> None:
    model = ChatListModel()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    rng = random.Random(5)
    for _ in range(300):
        chat_id = rng.randrange(12)
        if rng.random() < 0.2:
            model.remove(chat_id)
        else:
            model.put(ChatRow(chat_id, f"chat {rng.randrange(4)}", float(rng.randrange(50))))
        keys = [(-row.used_at, -row.chat_id) for row in model.rows()]
        assert keys == sorted(keys)
        assert len({row.chat_id for row in model.rows()}) == len(keys)
    assert tester is not None


def test_a_change_in_place_is_told_once(qtbot: QtBot) -> None:
    model = ChatListModel()
    model.put(ChatRow(1, "a", 10.0))
    with qtbot.waitSignal(model.dataChanged):
        model.put(ChatRow(1, "b", 10.0))
    with qtbot.assertNotEmitted(model.dataChanged):
        model.put(ChatRow(1, "b", 10.0))
