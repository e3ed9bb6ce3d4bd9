"""Export, import and print in the whole program, with the real store."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtWidgets import QDialog, QFileDialog
from pytestqt.qtbot import QtBot

from app.windows.chat_files import file_name
from tests.app.chat_files import FILES
from tests.app.program import Program


def save_as(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))


def open_files(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([str(p) for p in paths], ""))


def trigger(program: Program, action_id: str) -> None:
    program.app.window._actions.action(action_id).trigger()


def test_a_chat_goes_out_and_comes_back_with_its_versions(
    program: Program, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = program.app.controller
    controller.send("one two")
    program.wait_idle()
    controller.regenerate()
    program.wait_idle()
    path = tmp_path / "out.jsonl"
    save_as(monkeypatch, path)
    trigger(program, "export_all")
    qtbot.waitUntil(lambda: "Exported to" in program.app.window._notice.text)
    old = controller.conversation.chat_id
    open_files(monkeypatch, path)
    with qtbot.waitSignal(controller.chat_opened):
        trigger(program, "import_chats")
    assert controller.conversation.chat_id != old
    assert program.texts() == [("one two", "done"), ("w0 w1 w2 w3 w4 ", "done")]
    assert [item.n_versions for item in controller.conversation.items()] == [1, 2]
    program.restart()
    assert len(program.app.controller.chats.rows()) == 2
    program.app.controller.send("three")
    program.wait_idle()
    assert len(program.texts()) == 4


def test_files_of_others_come_in_and_damaged_ones_get_a_sentence(
    program: Program, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = tmp_path / "conversations.json", tmp_path / "bad.json"
    good.write_bytes(FILES["chatgpt"])
    bad.write_bytes(b"[{")
    open_files(monkeypatch, good, bad)
    with qtbot.waitSignal(program.app.controller.chat_opened):
        trigger(program, "import_chats")
    assert program.app.controller.conversation.title == "A tree"
    assert [text for text, _ in program.texts()] == ["What now?", "Second.", "Thanks."]
    qtbot.waitUntil(lambda: program.app.window._notice.text.startswith("1 chat(s) imported.\nbad.json: "))
    assert program.app.window._notice.isVisible()


def test_one_chat_is_written_as_a_page_and_printed(
    program: Program, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.app.controller.send("one two")
    program.wait_idle()
    save_as(monkeypatch, tmp_path / "page")
    trigger(program, "export_chat")
    qtbot.waitUntil(lambda: (tmp_path / "page.md").exists())
    assert "## You\n\none two\n" in (tmp_path / "page.md").read_text()

    def accept(dialog: QPrintDialog) -> int:
        dialog.printer().setOutputFormat(QPrinter.OutputFormat.PdfFormat)
        dialog.printer().setOutputFileName(str(tmp_path / "print.pdf"))
        return QDialog.DialogCode.Accepted.value

    monkeypatch.setattr(QPrintDialog, "exec", accept)
    trigger(program, "print_chat")
    qtbot.waitUntil(lambda: (tmp_path / "print.pdf").exists())
    assert (tmp_path / "print.pdf").read_bytes().startswith(b"%PDF")


def test_a_title_becomes_a_name_that_every_system_takes() -> None:
    assert file_name('a/b: "c"?\n') == "a_b_ _c___"
    assert file_name(" .. ") == "chat"
    assert len(file_name("x" * 300)) == 80
