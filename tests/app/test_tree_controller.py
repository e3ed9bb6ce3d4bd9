"""Versions, forks, deleting and search, from the controller and from the window."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.bridge.context_view import ContextRow, ContextView, Cost, CostKnown
from app.bridge.messages import ReplyRecord, Sampling
from app.windows.inspector import Inspector
from tests.app.desk import Desk


def test_an_edited_message_is_a_version_beside_the_old_one(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.say("two", "zwei")
    desk.controller.edit(desk.id_of(2), "three")
    assert desk.prompt() == ["one", "eins", "three"]
    desk.answer("drei")
    assert desk.texts() == ["one", "eins", "three", "drei"]
    assert desk.versions() == [(1, 1), (1, 1), (2, 2), (1, 1)]
    desk.controller.step_version(desk.id_of(2), -1)
    assert desk.texts() == ["one", "eins", "two", "zwei"]
    assert desk.versions()[2] == (1, 2)
    desk.controller.step_version(desk.id_of(2), -1)
    assert desk.texts()[2] == "two"
    desk.controller.step_version(desk.id_of(2), 1)
    assert desk.texts() == ["one", "eins", "three", "drei"]


def test_the_first_message_can_be_edited(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.controller.edit(desk.id_of(0), "two")
    desk.answer("zwei")
    assert desk.texts() == ["two", "zwei"]
    desk.controller.step_version(desk.id_of(0), -1)
    assert desk.texts() == ["one", "eins"]


def test_any_reply_can_be_made_again(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.say("two", "zwei")
    desk.controller.regenerate_reply(desk.id_of(1))
    assert desk.prompt() == ["one"]
    desk.answer("uno")
    assert (desk.texts(), desk.versions()) == (["one", "uno"], [(1, 1), (2, 2)])
    desk.controller.regenerate()
    desk.answer("un")
    assert desk.versions() == [(1, 1), (3, 3)]


def test_a_fork_leaves_the_chat_as_it_is(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.say("two", "zwei")
    first = desk.controller.conversation.chat_id
    desk.controller.fork(desk.id_of(1))
    assert desk.controller.conversation.chat_id != first
    assert desk.controller.conversation.title == "one (fork)"
    assert desk.texts() == ["one", "eins"]
    desk.say("other", "anders")
    prompt = desk.engine.prompts[desk.engine.last_job_id]
    assert [m.text for m in prompt] == ["one", "eins", "other"]
    assert prompt[1].token_ids == b"\x01\0\0\0"
    assert first is not None
    desk.controller.open_chat(first)
    assert desk.texts() == ["one", "eins", "two", "zwei"]


def test_deleted_messages_come_back_also_after_a_restart(desk: Desk, qapp: QApplication, tmp_path: Path) -> None:
    desk.say("one", "eins")
    desk.say("two", "zwei")
    desk.press(2, "Delete from here on")
    assert desk.texts() == ["one", "eins"]
    again = Desk(tmp_path, qapp)
    again.controller.open_chat(again.controller.chats.rows()[0].chat_id)
    assert again.texts() == ["one", "eins"]
    assert again.window._actions.action("undo_delete").isEnabled()
    again.controller.bin.undo()
    assert again.texts() == ["one", "eins", "two", "zwei"]
    assert not again.window._actions.action("undo_delete").isEnabled()
    again.window.deleteLater()


def test_the_window_edits_in_the_composer(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.press(0, "Write another version")
    composer = desk.window._composer
    assert composer.text == "one"
    QTest.keyClicks(composer._edit, " more")
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    desk.answer("mehr")
    assert desk.texts() == ["one more", "mehr"]
    assert composer.text == "" and desk.window._notice.isHidden()
    QTest.keyClick(composer._edit, Qt.Key.Key_Left, Qt.KeyboardModifier.AltModifier)
    assert desk.texts() == ["one", "eins"]
    QTest.keyClick(composer._edit, Qt.Key.Key_Up)
    assert composer.text == "one"
    desk.window._notice._button.click()
    assert composer.text == ""
    QTest.keyClicks(composer._edit, "plain")
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    assert desk.texts()[:3] == ["one", "eins", "plain"]


def test_search_looks_into_messages(desk: Desk) -> None:
    desk.say("rivers", "The Danube is long.")
    desk.controller.new_chat()
    desk.say("lakes", "Deep.")
    chats = desk.window._sidebar.chat_list
    QTest.keyClicks(desk.window._sidebar._search_edit, "danu")
    assert chats.n_shown() == 1
    QTest.keyClicks(desk.window._sidebar._search_edit, "x")
    assert chats.n_shown() == 0
    desk.window._sidebar._search_edit.clear()
    assert chats.n_shown() == 2


def test_emptying_the_bin_asks_first(desk: Desk) -> None:
    desk.say("one", "eins")
    chat_id = desk.controller.conversation.chat_id
    assert chat_id is not None
    desk.controller.delete_chat(chat_id)
    desk.window._actions.action("empty_bin").trigger()
    assert desk.controller.bin.n == 1
    desk.window._notice._button.click()
    assert desk.controller.bin.n == 0
    desk.controller.bin.undo()
    assert desk.controller.chats.rowCount() == 0


def test_a_later_schema_is_read_and_nothing_can_be_sent(desk: Desk, qapp: QApplication, tmp_path: Path) -> None:
    desk.say("one", "eins")
    database = desk.store.worker._database
    assert database is not None
    database.connection.execute("UPDATE meta SET value='99' WHERE key='schema'")
    database.close()
    again = Desk(tmp_path, qapp)
    again.controller.open_chat(again.controller.chats.rows()[0].chat_id)
    assert again.texts() == ["one", "eins"]
    again.controller.send("two")
    assert again.texts() == ["one", "eins"]
    assert "later version" in again.notices[-1]
    again.window.deleteLater()


def test_a_temporary_chat_writes_nothing(desk: Desk, tmp_path: Path) -> None:
    desk.say("kept", "yes")
    desk.controller.new_temporary_chat()
    desk.controller.set_draft("xyzzy draft")
    desk.say("xyzzy one", "xyzzy reply")
    desk.controller.edit(desk.id_of(0), "xyzzy two")
    desk.answer("xyzzy other")
    assert desk.texts() == ["xyzzy two", "xyzzy other"]
    desk.controller.set_draft("xyzzy more")
    assert [row.title for row in desk.controller.chats.rows()] == ["kept"]
    chat_id = desk.controller.conversation.chat_id
    desk.controller.new_chat()
    assert desk.engine.forgotten == [chat_id]
    desk.say("kept too", "yes")
    desk.controller.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"kept too" in written and b"xyzzy" not in written


def test_the_cost_of_the_draft_stands_in_the_status_line(desk: Desk, qtbot: QtBot) -> None:
    desk.controller._settings.system_prompt = "Be brief."
    composer, status = desk.window._composer, desk.window._status
    QTest.keyClicks(composer._edit, "one two")
    qtbot.waitUntil(lambda: bool(desk.engine.questions))
    question = desk.engine.questions[-1]
    assert [(m.role, m.text) for m in question.messages] == [("system", "Be brief."), ("user", "one two")]
    desk.engine.tell(CostKnown(0, "one two", Cost(2, 10, 5, 100, 0)))
    assert status.texts[0] == "2 tokens; 10 of 15 tokens ready; 100 left"
    desk.engine.tell(CostKnown(0, "older", Cost(9, 9, 9, 9, 9)))
    assert status.texts[0].startswith("2 tokens")
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    desk.answer("so")
    assert "ready; " not in status.texts[0]
    QTest.keyClicks(composer._edit, "x")
    qtbot.waitUntil(lambda: len(desk.engine.questions) == 2)
    chat_id = desk.controller.conversation.chat_id
    assert chat_id is not None
    desk.engine.tell(CostKnown(chat_id, "x", Cost(1, 20, 3, 50, 4)))
    assert status.texts[0].endswith("4 messages leave the context")
    desk.engine.tell(CostKnown(chat_id, "x", Cost(1, 20, 3, -5, 0)))
    assert "does not fit" in status.texts[0]


def test_a_full_context_stops_and_asks(desk: Desk, tmp_path: Path) -> None:
    desk.window._actions.action("overflow_stop").trigger()
    assert desk.window._actions.action("overflow_stop").isChecked()
    assert not desk.window._actions.action("overflow_shift").isChecked()
    desk.say("one", "eins")
    assert desk.engine.asked[desk.engine.last_job_id] == (frozenset(), "stop")
    desk.controller.send("two")
    desk.engine.start(desk.engine.last_job_id)
    desk.engine.finish(desk.engine.last_job_id, "context")
    assert "full" in desk.window._notice.text
    desk.window._notice._button.click()
    assert desk.engine.asked[desk.engine.last_job_id] == (frozenset(), "shift")
    assert desk.prompt() == ["one", "eins", "two"]
    desk.answer("zwei")
    assert desk.texts() == ["one", "eins", "two", "zwei"]
    database = desk.store.worker._database
    assert database is not None
    assert database.connection.execute("SELECT overflow FROM chat").fetchone()[0] == "shift"


def test_messages_are_pinned_and_brought_back(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.say("two", "zwei")
    desk.press(2, "Keep it in the context")
    assert desk.controller.conversation.items()[2].is_pinned
    desk.controller.send("three")
    job_id = desk.engine.last_job_id
    assert [m.is_pinned for m in desk.engine.prompts[job_id]] == [False, False, True, False, False]
    desk.engine.start(job_id)
    desk.engine.finish(job_id, out_ids=frozenset({desk.id_of(0), desk.id_of(1)}))
    assert [item.is_out for item in desk.controller.conversation.items()][:3] == [True, True, False]
    desk.press(1, "Bring back into the context")
    assert not any(item.is_out for item in desk.controller.conversation.items())
    desk.controller.send("four")
    assert desk.engine.asked[desk.engine.last_job_id][0] == frozenset()
    desk.engine.finish(desk.engine.last_job_id)
    chat_id = desk.controller.conversation.chat_id
    assert chat_id is not None
    desk.controller.open_chat(chat_id)
    assert [item.is_pinned for item in desk.controller.conversation.items()][:3] == [False, False, True]


def test_a_replay_says_what_came_of_it(desk: Desk) -> None:
    record = ReplyRecord("t", json.dumps({"temperature": 0.5, "seed": 7, "n_predict": 9}), "1", "avx2", "c")
    desk.controller.send("one")
    desk.engine.record = record
    desk.answer("eins")
    desk.window._actions.action("replay").trigger()
    assert desk.engine.ways[desk.engine.last_job_id] == (Sampling(temperature=0.5, seed=7), 9)
    desk.answer("eins")
    assert desk.controller.generation.note == "The same text came out again."
    assert desk.versions()[1] == (2, 2)
    desk.window._actions.action("replay").trigger()
    desk.engine.record = replace(record, context_hash="shifted c", isa="scalar")
    desk.answer("uno")
    assert "the processor's instructions, what is in the context" in desk.controller.generation.note
    desk.engine.record = ReplyRecord()
    desk.controller.send("two")
    desk.answer("zwei")
    desk.window._actions.action("replay").trigger()
    assert "not known" in desk.notices[-1]
    chat_id = desk.controller.conversation.chat_id
    assert chat_id is not None
    desk.controller.open_chat(chat_id)
    desk.controller.replay(desk.id_of(1))
    assert desk.engine.ways[desk.engine.last_job_id] == (Sampling(temperature=0.5, seed=7), 9)


def test_the_inspector_shows_messages_and_tokens(desk: Desk) -> None:
    desk.say("one", "eins")
    desk.say("two", "zwei")
    desk.window._composer._meter.click()
    inspector = desk.window.findChild(Inspector, "inspector")
    assert isinstance(inspector, Inspector)
    chat_id = desk.controller.conversation.chat_id
    assert chat_id is not None and desk.engine.inspected == [chat_id]
    rows = (ContextRow(desk.id_of(0), True), ContextRow(desk.id_of(2), False, 5, 7))
    desk.engine.tell(ContextView(chat_id, rows, "<s>two", "f16", 12, 512, 2048))
    table = inspector._table

    def cells(i: int) -> list[str]:
        found = [table.item(i, j) for j in range(4)]
        return [cell.text() if cell is not None else "" for cell in found]

    assert cells(0) == ["user: one", "has left", "", ""]
    assert cells(1)[1] == "not computed yet"
    assert cells(2) == ["user: two", "in the context", "5–11", "7"]
    assert "12 of 512 tokens" in inspector._head_label.text() and "f16" in inspector._head_label.text()
    inspector._copy_button.click()
    assert QGuiApplication.clipboard().text() == "<s>two"


def test_what_leaves_is_summed_up(desk: Desk) -> None:
    desk.window._actions.action("overflow_summarise").trigger()
    desk.say("one", "eins")
    desk.controller.send("two")
    job_id = desk.engine.last_job_id
    desk.engine.start(job_id)
    desk.engine.say(job_id, "zwei")
    desk.engine.finish(job_id, out_ids=frozenset({desk.id_of(0), desk.id_of(1)}))
    assert desk.engine.last_job_id == job_id + 1
    assert desk.prompt()[0].endswith("user: one\n\nassistant: eins")
    desk.answer("They counted.")
    summary = "Summary of what has left the context:\n\nThey counted."
    assert desk.texts() == ["one", "eins", "two", "zwei", summary]
    item = desk.controller.conversation.items()[-1]
    assert (item.role, item.is_pinned, item.is_out) == ("user", True, False)
    desk.controller.send("three")
    question = desk.engine.prompts[desk.engine.last_job_id][-1]
    assert question.text == f"{summary}\n\nthree" and question.is_pinned
    desk.answer("drei")
    chat_id = desk.controller.conversation.chat_id
    assert chat_id is not None
    desk.controller.open_chat(chat_id)
    assert desk.texts() == ["one", "eins", "two", "zwei", summary, "three", "drei"]


def test_a_reply_before_a_summary_is_made_again(desk: Desk) -> None:
    desk.window._actions.action("overflow_summarise").trigger()
    desk.say("one", "eins")
    desk.controller.send("two")
    job_id = desk.engine.last_job_id
    desk.engine.start(job_id)
    desk.engine.finish(job_id, out_ids=frozenset({desk.id_of(0)}))
    desk.answer("Summed up.")
    desk.controller.regenerate()
    assert desk.prompt() == ["one", "eins", "two"]


def test_a_summary_that_came_too_late_is_made_with_the_next(desk: Desk) -> None:
    desk.window._actions.action("overflow_summarise").trigger()
    desk.say("one", "eins")
    desk.controller.send("two")
    job_id = desk.engine.last_job_id
    desk.engine.start(job_id)
    desk.engine.say(job_id, "zwei")
    out = frozenset({desk.id_of(0), desk.id_of(1)})
    desk.engine.finish(job_id, out_ids=out)
    late = desk.engine.last_job_id
    desk.controller.send("three")
    third = desk.engine.last_job_id
    desk.engine.start(late)
    desk.engine.say(late, "Too late.")
    desk.engine.finish(late)
    assert len(desk.texts()) == 6
    desk.engine.start(third)
    desk.engine.say(third, "drei")
    desk.engine.finish(third, out_ids=out)
    assert desk.prompt()[0].endswith("user: one\n\nassistant: eins")
    desk.answer("In time.")
    assert desk.texts()[-1].endswith("In time.")
