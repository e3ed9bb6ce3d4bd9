"""The window of session files on a controller with inline storage."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.bridge.messages import SessionSaved
from app.models.session_files import Column
from app.windows.memory_window import MemoryWindow
from tests.app.fakes import make_bench


def test_files_are_listed_kept_and_wiped(qtbot: QtBot, tmp_path: Path) -> None:
    owner, parent = QObject(), QWidget()
    qtbot.addWidget(parent)
    controller, engine, store = make_bench(tmp_path, owner)
    settings = controller._settings
    folder = tmp_path / "sessions"
    chats = []
    for i, title in enumerate(("Rivers", "Lakes", "Seas")):
        controller.new_chat()
        controller.send(title)
        engine.start(engine.last_job_id)
        engine.finish(engine.last_job_id)
        chat_id = controller.conversation.chat_id
        assert chat_id is not None
        chats.append(chat_id)
        (folder / f"{chat_id}.fp.kv").write_bytes(bytes(1000 << i))
        store.worker.on_engine_event(SessionSaved(chat_id, 1, "fp", f"{chat_id}.fp.kv", 10, 1000 << i))
    window = MemoryWindow(controller, settings, parent)
    files = controller.session_files
    titles = {str(files.index(row, Column.CHAT).data()): row for row in range(files.rowCount())}
    assert titles.keys() == {"Rivers", "Lakes", "Seas"} and files.taken_bytes == 7000
    kept = files.index(titles["Rivers"], Column.KEPT)
    assert files.setData(kept, Qt.CheckState.Checked.value, int(Qt.ItemDataRole.CheckStateRole))
    assert kept.data(int(Qt.ItemDataRole.CheckStateRole)) == Qt.CheckState.Checked.value
    window._disk_spin.setValue(1)
    assert settings.disk_budget_mb == 1 and files.budget_bytes == 1 << 20
    window._table.selectRow(titles["Seas"])
    window._wipe_button.click()
    assert sorted(path.name for path in folder.iterdir()) == [f"{chat_id}.fp.kv" for chat_id in chats[:2]]
    (folder / f"{chats[1]}.fp.kv").write_bytes(bytes(2 << 20))
    store.worker.on_engine_event(SessionSaved(chats[1], 1, "fp", f"{chats[1]}.fp.kv", 10, 2 << 20))
    assert [path.name for path in folder.iterdir()] == [f"{chats[0]}.fp.kv"]
    window._wipe_all_button.click()
    assert list(folder.iterdir()) == []
    window.deleteLater()
