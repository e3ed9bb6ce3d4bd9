"""The whole window on a controller with a scripted engine: every control named, every action does its work."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.models import Phase
from app.widgets.shortcut_help import ShortcutHelp
from app.windows.main_window import MainWindow
from tests.app.desk import Desk

CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier


def controls(root: QWidget) -> list[QWidget]:
    return [
        w
        for w in root.findChildren(QWidget)
        if w.focusPolicy() != Qt.FocusPolicy.NoFocus and not w.objectName().startswith("qt_") and w.focusProxy() is None
    ]


def assert_named(root: QWidget) -> None:
    for widget in controls(root):
        if not widget.isVisibleTo(root.window()):
            continue
        text = widget.text() if isinstance(widget, (QAbstractButton, QLabel)) else ""
        where = f"{type(widget).__name__} {widget.objectName()!r} in {type(widget.parent()).__name__}"
        assert widget.accessibleName() or text, where
        if isinstance(widget, QAbstractButton) and not text:
            assert widget.toolTip(), where


def test_every_control_has_a_name(desk: Desk) -> None:
    desk.write("Hello")
    desk.answer("Hi.")
    desk.window.pick_model()
    desk.window.dialogs.show_shortcuts()
    desk.window.dialogs.show_memory()
    desk.window.dialogs.show_inspector()
    assert_named(desk.window)
    names = {w.accessibleName() for w in controls(desk.window)}
    assert {"Conversation", "Message", "Chats", "Search chats", "Context", "Menu", "Models"} <= names
    for dialog in desk.window.findChildren(QDialog):
        dialog.close()


def test_tab_reaches_every_control_of_the_window(desk: Desk) -> None:
    desk.write("Hello")
    desk.answer("Hi.")
    desk.window._view._hover(1)
    wanted = {
        w for w in controls(desk.window) if w.isVisible() and w.isEnabled() and not isinstance(w.window(), QDialog)
    }
    seen = set()
    for _ in range(60):
        focus = QApplication.focusWidget()
        if focus is not None:
            seen.add(focus)
        QTest.keyClick(desk.window, Qt.Key.Key_Tab)
        desk.window._view._hover(1)
    missing = {f"{type(w).__name__} {w.accessibleName() or w.objectName()}" for w in wanted - seen}
    assert not missing


def test_a_message_is_sent_streamed_and_stopped(desk: Desk) -> None:
    assert desk.window._stack.currentWidget() is desk.window._empty
    desk.write("Hello")
    assert desk.window._composer.text == ""
    assert desk.window._stack.currentWidget() is desk.window._view
    assert desk.window.windowTitle() == "Hello – Causerie"
    job_id = desk.engine.last_job_id
    desk.engine.start(job_id)
    desk.engine.say(job_id, "Hi **there**")
    assert desk.controller.generation.phase is Phase.GENERATING
    assert not desk.window._actions.action("regenerate").isEnabled()
    desk.key(Qt.Key.Key_Escape)
    assert desk.engine.cancelled == [job_id]
    desk.engine.finish(job_id, "cancelled")
    assert desk.window._actions.action("regenerate").isEnabled()
    desk.window.grab()


def test_what_cannot_be_sent_comes_back(desk: Desk) -> None:
    desk.write("Hello")
    desk.write("Too early")
    assert desk.window._composer.text == "Too early"
    assert desk.window._notice.isVisible()


def test_new_chat_search_and_sidebar(desk: Desk) -> None:
    desk.write("Rivers")
    desk.answer("Wet.")
    desk.key(Qt.Key.Key_N, CONTROL)
    assert desk.controller.conversation.chat_id is None
    assert desk.window._stack.currentWidget() is desk.window._empty
    desk.key(Qt.Key.Key_B, CONTROL)
    assert desk.window._sidebar.isHidden()
    assert not desk.settings.is_sidebar_visible
    desk.key(Qt.Key.Key_K, CONTROL)
    assert not desk.window._sidebar.isHidden()
    QTest.keyClicks(desk.window._sidebar._search_edit, "riv")
    desk.key(Qt.Key.Key_Return)
    assert desk.controller.conversation.title == "Rivers"
    assert desk.window._composer._edit.hasFocus()


def test_deleting_can_be_undone(desk: Desk) -> None:
    desk.write("Rivers")
    desk.answer("Wet.")
    chat_id = desk.controller.conversation.chat_id
    desk.key(Qt.Key.Key_Backspace)
    assert desk.controller.chats.rowCount() == 1
    desk.key(Qt.Key.Key_Backspace, CONTROL | SHIFT)
    assert desk.controller.chats.rowCount() == 0
    assert desk.window._notice.isVisible()
    desk.window._notice._button.click()
    assert desk.controller.conversation.chat_id == chat_id


def test_renaming_by_f2(desk: Desk, qtbot: QtBot) -> None:
    desk.write("Rivers")
    desk.answer("Wet.")
    desk.key(Qt.Key.Key_F2)
    editor = desk.window.focusWidget()
    assert editor is not None
    assert editor.objectName() == "rename_edit"
    QTest.keyClicks(editor, "Lakes")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: desk.controller.conversation.title == "Lakes")
    assert "Lakes" in desk.window.windowTitle()


def test_regenerate_and_copy(desk: Desk) -> None:
    desk.write("Code, please")
    desk.answer("Here:\n\n```py\nx = 1\n```\n")
    desk.key(Qt.Key.Key_C, CONTROL | SHIFT)
    assert QGuiApplication.clipboard().text().startswith("Here:")
    desk.window.copy_last_code()
    assert QGuiApplication.clipboard().text() == "x = 1"
    before = desk.engine.last_job_id
    desk.key(Qt.Key.Key_R, CONTROL)
    assert desk.engine.last_job_id == before + 1


def test_zoom_and_theme_are_kept(desk: Desk) -> None:
    desk.key(Qt.Key.Key_Plus, CONTROL)
    assert desk.settings.zoom == 110
    desk.key(Qt.Key.Key_Minus, CONTROL)
    desk.key(Qt.Key.Key_Minus, CONTROL)
    assert desk.settings.zoom == 90
    desk.key(Qt.Key.Key_0, CONTROL)
    assert desk.settings.zoom == 100
    desk.theme.use_dark()
    assert desk.settings.theme == "dark"
    desk.window.grab()


def test_the_picker_loads_a_model(desk: Desk) -> None:
    desk.key(Qt.Key.Key_L, CONTROL)
    picker = desk.window._picker
    assert picker is not None
    assert picker.isVisible()
    picker.chosen.emit("/models/Other.gguf")
    assert desk.engine.loads[-1] == "/models/Other.gguf"
    picker.close()


def test_help_lists_the_keys(desk: Desk) -> None:
    desk.key(Qt.Key.Key_F1)
    window = desk.window.findChild(ShortcutHelp)
    assert window is not None
    texts = {label.text() for label in window.findChildren(QLabel)}
    assert {"Stop", "Esc", "Send", "Enter", "Ctrl+Shift+Backspace"} <= texts
    window.close()


def test_links_are_opened_only_when_confirmed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    desk.window._view.link_clicked.emit("https://exämple.org/x?a=1")
    assert opened == []
    assert desk.window._notice.text.startswith("https://xn--exmple-cua.org/x")
    desk.window._notice._button.click()
    assert len(opened) == 1
    desk.window._view.link_clicked.emit("file:///etc/passwd")
    assert not desk.window._notice._button.isVisible()
    desk.window._view.link_clicked.emit("javascript:alert(1)")
    assert len(opened) == 1


def test_size_is_remembered(desk: Desk) -> None:
    desk.window.resize(700, 610)
    desk.window.close()
    assert desk.settings.window_geometry
    other = MainWindow(desk.controller, desk.settings, desk.theme)
    assert other.size().width() == 700
    other.deleteLater()


def test_a_window_is_made_quickly(desk: Desk, qtbot: QtBot) -> None:
    started = time.thread_time()
    window = MainWindow(desk.controller, desk.settings, desk.theme)
    qtbot.addWidget(window)
    window.show()
    window.grab()
    assert time.thread_time() - started < 0.5


def test_idle_windows_do_nothing(desk: Desk, qtbot: QtBot) -> None:
    desk.write("Hello")
    desk.answer("```python\nx = 1\n```")
    view = desk.window._view
    qtbot.waitUntil(lambda: not view._frame_timer.isActive() and not view._colour_timer.isActive(), timeout=5_000)
    qtbot.wait(50)
    assert not desk.window._view._colour_timer.isActive()
    assert not desk.window._view._frame_timer.isActive()
    assert not desk.window._view._drag_timer.isActive()
