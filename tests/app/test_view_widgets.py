"""Composer, list of chats, picker, meter, status line and notices, on models filled by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from PySide6.QtCore import QLocale, QPoint, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QAbstractItemModelTester, QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.bridge.messages import ContextNeed
from app.models import ChatListModel, ChatRow, GenerationState, GenerationValues, ModelCatalogue, ModelEntry, Phase
from app.theme import Theme, ThemeMode
from app.widgets.chat_list_view import ChatListView, Day, day_of, day_starts
from app.widgets.composer import Composer
from app.widgets.context_meter import ContextMeter
from app.widgets.empty_state import EmptyState
from app.widgets.model_picker import ModelPicker
from app.widgets.notice_bar import NoticeBar
from app.widgets.sidebar import Sidebar
from app.widgets.status_line import StatusLine

CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier
IDLE = GenerationValues(Phase.IDLE, "Fake 1B", n_ctx=2048, n_used=512, n_reused=100, n_computed=11)
BUSY = GenerationValues(Phase.GENERATING, "Fake 1B", n_ctx=2048, n_used=512, tok_s=25.26, n_generated=40)


@pytest.fixture(scope="module")
def theme(qapp: QApplication) -> Iterator[Theme]:
    theme = Theme(qapp, ThemeMode.LIGHT)
    yield theme
    theme.deleteLater()


@pytest.fixture
def host(qtbot: QtBot) -> QWidget:
    """A window for the widget under test."""
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(800, 600)
    host.show()
    return host


@pytest.fixture
def state(host: QWidget) -> GenerationState:
    state = GenerationState(host)
    state.set(IDLE)
    return state


@pytest.fixture
def composer(host: QWidget, theme: Theme, state: GenerationState) -> Composer:
    composer = Composer(state, theme, host)
    composer.resize(700, 200)
    composer.show()
    composer.setFocus()
    return composer


def sent(composer: Composer) -> list[str]:
    texts: list[str] = []
    composer.submitted.connect(texts.append)
    return texts


def test_enter_sends_and_shift_enter_begins_a_line(composer: Composer) -> None:
    texts = sent(composer)
    QTest.keyClicks(composer._edit, "Hello")
    QTest.keyClick(composer._edit, Qt.Key.Key_Return, SHIFT)
    QTest.keyClicks(composer._edit, "there")
    assert texts == []
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    assert texts == ["Hello\nthere"]
    assert composer.text == "Hello\nthere"
    composer.clear()
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    QTest.keyClicks(composer._edit, "   ")
    QTest.keyClick(composer._edit, Qt.Key.Key_Enter)
    assert texts == ["Hello\nthere"]


def test_enter_while_a_word_is_composed_sends_nothing(composer: Composer) -> None:
    texts = sent(composer)
    QTest.keyClicks(composer._edit, "x")
    QApplication.sendEvent(composer._edit, QInputMethodEvent("にほ", []))
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    assert texts == []
    commit = QInputMethodEvent("", [])
    commit.setCommitString("日本")
    QApplication.sendEvent(composer._edit, commit)
    assert composer.text == "x日本"
    QTest.keyClick(composer._edit, Qt.Key.Key_Return)
    assert texts == ["x日本"]


def test_clearing_can_be_undone(composer: Composer) -> None:
    composer.set_text("A long thought")
    composer.clear()
    QTest.keyClick(composer._edit, Qt.Key.Key_Z, CONTROL)
    assert composer.text == "A long thought"


def test_up_in_an_empty_box_recalls(composer: Composer, qtbot: QtBot) -> None:
    with qtbot.waitSignal(composer.recall_requested):
        QTest.keyClick(composer._edit, Qt.Key.Key_Up)
    composer.set_text("x")
    with qtbot.assertNotEmitted(composer.recall_requested):
        QTest.keyClick(composer._edit, Qt.Key.Key_Up)


def test_the_box_grows_to_a_third_of_the_window(composer: Composer) -> None:
    low = composer._edit.height()
    composer.set_text("a\nb\nc\nd")
    assert composer._edit.height() > low
    composer.set_text("line\n" * 200)
    assert composer._edit.height() <= 600 // 3
    composer.set_text("")
    assert composer._edit.height() == low


def test_send_becomes_stop_in_the_same_place(composer: Composer, state: GenerationState, qtbot: QtBot) -> None:
    button = composer._send_button
    assert not button.isEnabled()
    composer.set_text("x")
    assert button.isEnabled()
    place = button.geometry()
    state.set(BUSY)
    assert button.is_stop
    assert button.accessibleName() == "Stop"
    assert button.geometry() == place
    with qtbot.waitSignal(composer.stop_requested), qtbot.assertNotEmitted(composer.submitted):
        button.click()
    state.set(GenerationValues(Phase.STOPPING, "Fake 1B"))
    assert not button.isEnabled()
    state.set(IDLE)
    assert not button.is_stop


def test_pasted_text_is_plain_and_bounded(composer: Composer) -> None:
    QApplication.clipboard().setText("y" * 2_500_000)
    started = time.thread_time()
    composer._edit.paste()
    assert len(composer.text) <= 2_000_000
    assert time.thread_time() - started < 3
    composer.clear()


def test_days() -> None:
    starts = day_starts(date.today())
    now = time.time()
    assert day_of(now, starts) is Day.TODAY
    assert day_of(now - 40 * 86_400, starts) is Day.OLDER
    assert day_of(now - 20 * 86_400, starts) is Day.MONTH


@pytest.fixture
def chats(host: QWidget) -> ChatListModel:
    chats = ChatListModel(host)
    now = time.time()
    chats.set_rows(
        ChatRow(i, title, now - i * 80_000) for i, title in enumerate(["Rivers", "Lakes", "Seas", "River boats"])
    )
    return chats


@pytest.fixture
def chat_list(host: QWidget, theme: Theme, chats: ChatListModel) -> ChatListView:
    view = ChatListView(chats, theme, host)
    view.resize(260, 500)
    view.show()
    return view


def test_the_filter_is_a_sound_model(chat_list: ChatListView, chats: ChatListModel) -> None:
    QAbstractItemModelTester(chat_list._filter, QAbstractItemModelTester.FailureReportingMode.Fatal, chat_list)
    chat_list.set_search("river")
    assert chat_list.n_shown() == 2
    chats.put(ChatRow(9, "More rivers", time.time() + 5))
    chats.remove(0)
    chat_list.set_search("")
    assert chat_list.n_shown() == 4
    chat_list.grab()


def test_a_click_opens_and_the_heading_does_not(chat_list: ChatListView, qtbot: QtBot) -> None:
    index = chat_list._filter.index(1, 0)
    rect = chat_list.visualRect(index)
    row = chat_list._delegate.row_rect(rect, index)
    with qtbot.waitSignal(chat_list.chat_chosen) as caught:
        QTest.mouseClick(chat_list.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, row.center())
    assert caught.args == [1]
    first = chat_list.visualRect(chat_list._filter.index(0, 0))
    with qtbot.assertNotEmitted(chat_list.chat_chosen):
        QTest.mouseClick(
            chat_list.viewport(),
            Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
            first.topLeft() + QPoint(30, 6),
        )


def test_keys_in_the_list(chat_list: ChatListView, qtbot: QtBot) -> None:
    chat_list.set_open_chat(0)
    chat_list.setFocus()
    QTest.keyClick(chat_list, Qt.Key.Key_Down)
    with qtbot.waitSignal(chat_list.chat_chosen) as caught:
        QTest.keyClick(chat_list, Qt.Key.Key_Return)
    assert caught.args == [1]
    with qtbot.assertNotEmitted(chat_list.delete_requested):
        QTest.keyClick(chat_list, Qt.Key.Key_Backspace)
        QTest.keyClick(chat_list, Qt.Key.Key_Delete)


def test_renaming_in_place(chat_list: ChatListView, qtbot: QtBot) -> None:
    chat_list.begin_rename(2)
    editor = chat_list.findChild(QLineEdit, "rename_edit")
    assert editor is not None
    assert editor.text() == "Seas"
    editor.setText("Oceans")
    with qtbot.waitSignal(chat_list.rename_requested) as caught:
        QTest.keyClick(editor, Qt.Key.Key_Return)
    assert caught.args == [2, "Oceans"]


def test_the_open_chat_stays_marked_when_rows_move(chat_list: ChatListView, chats: ChatListModel) -> None:
    chat_list.set_open_chat(2)
    chats.put(ChatRow(2, "Seas", time.time() + 60))
    assert chat_list.currentIndex().row() == 0
    chat_list.set_open_chat(-1)
    assert not chat_list.currentIndex().isValid()


def test_five_thousand_chats_are_listed_quickly(host: QWidget, theme: Theme) -> None:
    chats = ChatListModel(host)
    now = time.time()
    rows = [ChatRow(i, f"Chat {i}", now - i * 4_000) for i in range(5_000)]
    started = time.thread_time()
    chats.set_rows(rows)
    view = ChatListView(chats, theme, host)
    view.resize(260, 600)
    view.show()
    view.grab()
    assert time.thread_time() - started < 0.25
    QApplication.processEvents()
    started = time.thread_time()
    chats.put(ChatRow(2_000, "Chat 2000", now + 5, is_generating=True))
    view.grab()
    QApplication.processEvents()
    assert time.thread_time() - started < 0.1


def test_sidebar_search(host: QWidget, theme: Theme, chats: ChatListModel, qtbot: QtBot) -> None:
    sidebar = Sidebar(chats, theme, host)
    sidebar.show()
    assert sidebar._empty_label.isHidden()
    sidebar.focus_search()
    QTest.keyClicks(sidebar._search_edit, "boat")
    with qtbot.waitSignal(sidebar.chat_list.chat_chosen) as caught:
        QTest.keyClick(sidebar._search_edit, Qt.Key.Key_Return)
    assert caught.args == [3]
    QTest.keyClicks(sidebar._search_edit, "zzz")
    assert "title" in sidebar._empty_label.text()
    assert not sidebar._empty_label.isHidden()
    with qtbot.waitSignal(sidebar.search_left):
        QTest.keyClick(sidebar._search_edit, Qt.Key.Key_Escape)
    assert sidebar.chat_list.n_shown() == 4
    chats.set_rows([])
    assert "first" in sidebar._empty_label.text()


GB = 1 << 30
MODELS = (
    ModelEntry(Path("/m/small.gguf"), "Small", "llama", 135_000_000, "Q4_1", 8192, 90 << 20, 350 << 20),
    ModelEntry(Path("/m/big.gguf"), "Big", "qwen2", 72_000_000_000, "Q5_K", 131072, 50 * GB, 55 * GB),
    ModelEntry(Path("/m/broken.gguf"), "broken.gguf", problem="tensor_count at byte 8: too many"),
    ModelEntry(Path("/m/base.gguf"), "Base", "gemma3", 268_000_000, "Q4_K", 32768, GB // 4, GB // 2, note="plain text"),
)


@pytest.fixture
def picker(host: QWidget, theme: Theme) -> ModelPicker:
    catalogue = ModelCatalogue(host)
    picker = ModelPicker(catalogue, theme, host)
    picker.show()
    catalogue.set_entries(MODELS, 14 * GB)
    return picker


def names(picker: ModelPicker) -> list[str]:
    return [str(picker._model.index(i, 0).data()) for i in range(picker._model.rowCount())]


def test_the_picker_lists_and_loads_by_keyboard(picker: ModelPicker, qtbot: QtBot) -> None:
    assert names(picker) == ["Base", "Big", "Small", "broken.gguf"]
    assert "14" in picker._memory_label.text()
    QTest.keyClick(picker._search_edit, Qt.Key.Key_Down)
    assert "more memory" in picker._detail_label.text()
    QTest.keyClick(picker._search_edit, Qt.Key.Key_Down)
    with qtbot.waitSignal(picker.chosen) as caught:
        QTest.keyClick(picker._search_edit, Qt.Key.Key_Return)
    assert caught.args == ["/m/small.gguf"]
    assert picker.isHidden()


def test_a_model_that_is_too_large_says_what_would_make_it_fit(
    picker: ModelPicker, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = tuple(
        ContextNeed(t, n, int(n * x * GB / 1024) + 10 * GB) for t, x in (("f16", 4), ("q8_0", 2)) for n in (1024, 2048)
    )
    large = ModelEntry(Path("/m/large.gguf"), "Large", "llama", need_bytes=18 * GB, contexts=needs, tok_s=3.25)
    huge = ModelEntry(Path("/m/vast.gguf"), "Vast", "llama", need_bytes=99 * GB)
    picker._catalogue.set_entries((*MODELS, large, huge), 15 * GB)
    picker._table.selectRow(names(picker).index("Vast"))
    assert "smaller model" in picker._detail_label.text()
    picker._table.selectRow(names(picker).index("Large"))
    lines = picker._detail_label.text().replace(QLocale().groupSeparator(), "").splitlines()
    assert "more memory" in lines[1]
    assert lines[2:4] == [
        "It would fit with a context of 1280 tokens kept as f16.", "It would fit with a context of 2048 tokens kept as q8_0."
    ]  # fmt: skip
    assert "3.3 tokens" in lines[4] or "3.2 tokens" in lines[4]
    answers = [QMessageBox.StandardButton.No, QMessageBox.StandardButton.Yes]
    asked: list[str] = []

    def answer(parent: QWidget, title: str, text: str, *_: object) -> QMessageBox.StandardButton:
        asked.append(text)
        return answers.pop(0)

    monkeypatch.setattr(QMessageBox, "question", answer)
    with qtbot.assertNotEmitted(picker.chosen):
        picker._load_button.click()
    with qtbot.waitSignal(picker.chosen):
        picker._load_button.click()
    assert len(asked) == 2
    assert "q8_0" in asked[0]


def test_a_new_list_keeps_the_mark(picker: ModelPicker) -> None:
    picker._table.selectRow(names(picker).index("Small"))
    picker._catalogue.set_entries(MODELS[:1] + MODELS[3:], 14 * GB)
    marked = picker.selected()
    assert marked is not None
    assert marked.name == "Small"


def test_damaged_files_say_what_is_wrong_and_cannot_be_loaded(picker: ModelPicker, qtbot: QtBot) -> None:
    picker._table.selectRow(3)
    assert "too many" in picker._detail_label.text()
    assert not picker._load_button.isEnabled()
    assert picker._table.columnSpan(3, 1) > 1
    assert "too many" in str(picker._model.index(3, 1).data())
    with qtbot.assertNotEmitted(picker.chosen):
        picker._table.doubleClicked.emit(picker._model.index(3, 0))
        QTest.keyClick(picker._table, Qt.Key.Key_Return)


def test_searching_and_sorting_models(picker: ModelPicker) -> None:
    picker._table.sortByColumn(2, Qt.SortOrder.AscendingOrder)
    assert names(picker) == ["Small", "Base", "Big", "broken.gguf"]
    picker._table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    assert names(picker) == ["Big", "Base", "Small", "broken.gguf"]
    picker._search_edit.setText("gemma")
    assert names(picker) == ["Base"]
    picker._search_edit.setText("nothing like it")
    assert "No model" in picker._detail_label.text()
    assert not picker._load_button.isEnabled()


def test_no_models(host: QWidget, theme: Theme) -> None:
    catalogue = ModelCatalogue(host)
    picker = ModelPicker(catalogue, theme, host)
    picker.show()
    assert "Looking" in picker._detail_label.text()
    catalogue.set_entries([], 0)
    assert "No models were found" in picker._detail_label.text()
    assert picker._memory_label.text() == ""


def test_meter_and_status(host: QWidget, theme: Theme, state: GenerationState) -> None:
    meter, line = ContextMeter(state, theme, host), StatusLine(state, host)
    assert meter.share == 0.25
    assert "25 %" in meter.accessibleDescription()
    assert line.texts == ("100 tokens were ready, 11 computed", "")
    state.set(GenerationValues(Phase.PREFILL, "Fake", n_ctx=2048, n_reused=1204, n_computed=5, n_to_compute=11))
    assert "5 of 11" in line.texts[0]
    state.set(BUSY)
    assert "40" in line.texts[1]
    assert "25.3" in line.texts[1]
    state.set(GenerationValues(Phase.LOADING, "Fake", load_fraction=0.42))
    assert "42 %" in line.texts[0]
    state.set(GenerationValues(Phase.IDLE, "Fake", error="It broke."))
    assert line.texts[0] == "It broke."
    assert line._left_label.property("danger") is True
    state.set(GenerationValues())
    assert meter.share == 0
    meter.grab()


def test_empty_states_say_what_to_do_next(host: QWidget, state: GenerationState, qtbot: QtBot) -> None:
    empty = EmptyState(state, host)
    empty.show()
    assert not empty._pick_button.isVisible()
    state.set(GenerationValues(Phase.NO_MODEL, error="The file is damaged."))
    assert empty._text_label.text() == "The file is damaged."
    with qtbot.waitSignal(empty.pick_requested):
        empty._pick_button.click()
    with qtbot.waitSignal(empty.open_requested):
        empty._open_button.click()
    state.set(GenerationValues(Phase.LOADING, "Big"))
    assert empty.heading == "Loading Big"


def test_notices(host: QWidget, theme: Theme, composer: Composer, qtbot: QtBot) -> None:
    bar = NoticeBar(theme, composer, host)
    bar.show_notice("Deleted: Lakes", "Bring it back", "undo")
    assert bar.isVisible()
    with qtbot.waitSignal(bar.accepted) as caught:
        bar._button.click()
    assert caught.args == ["undo"]
    assert bar.isHidden()
    bar.say("x" * 5_000)
    assert len(bar.text) < 500
    bar._on_time_over()
    assert bar.isHidden()
