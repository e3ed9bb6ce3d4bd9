"""The whole window on a fake engine: wiring, closing in the middle of things, one process per folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app.single_instance import SingleInstance
from tests.app.fake_engine import FakeEngine
from tests.app.program import PATIENCE_MS, Program
from tests.engine.oracle_cases import DATA

ROOT = Path(__file__).parents[2]


def test_a_chat_is_there_again_and_only_new_tokens_are_computed(program: Program) -> None:
    program.app.controller.send("one two three")
    program.wait_idle()
    assert program.texts() == [("one two three", "done"), ("w0 w1 w2 w3 w4 ", "done")]
    program.restart()
    assert program.texts() == [("one two three", "done"), ("w0 w1 w2 w3 w4 ", "done")]
    program.app.controller.send("four")
    program.wait_idle()
    state = program.app.controller.generation
    assert (state.n_reused, state.n_computed) == (8, 1)
    assert state.n_used == 14


def test_closing_in_the_middle_of_a_reply_keeps_what_was_shown(program: Program) -> None:
    program.engine.n_words, program.engine.delay_s = 1000, 0.003
    program.app.controller.send("go")
    program.wait_words(20)
    shown = program.texts()[1][0]
    program.restart()
    text, state = program.texts()[1]
    assert state == "stopped" and text.startswith(shown)
    program.engine.n_words, program.engine.delay_s = 2, 0.0
    program.app.controller.send("more")
    program.wait_idle()
    assert program.app.controller.generation.n_computed == 1


def test_closing_while_two_chats_are_answered(program: Program) -> None:
    program.engine.n_words, program.engine.delay_s = 1000, 0.003
    program.app.controller.send("first")
    program.wait_words(3)
    program.app.controller.new_chat()
    program.app.controller.send("second")
    assert program.texts()[1] == ("", "queued")
    program.restart()
    assert len(program.app.controller.chats.rows()) == 2
    assert [state for _, state in program.texts()] == ["done", "stopped"]
    assert program.texts()[0][0] == "second"


def test_closing_while_the_model_loads(program: Program, tmp_path: Path) -> None:
    program.engine.load_s = 10.0
    program.app.controller.load_model(str(program.model))
    began = time.monotonic()
    program.engine.load_s = 0.0
    program.restart()
    assert time.monotonic() - began < 10


def test_the_window_stays_awake_while_a_reply_is_made(program: Program, qtbot: QtBot) -> None:
    program.engine.n_words, program.engine.delay_s = 400, 0.001
    late: list[float] = []
    last = time.monotonic()

    def tick() -> None:
        nonlocal last
        now = time.monotonic()
        late.append(now - last - 0.01)
        last = now

    timer = QTimer()
    timer.setInterval(10)
    timer.timeout.connect(tick)
    timer.start()
    program.app.controller.send("go")
    program.wait_idle()
    timer.stop()
    assert sorted(late)[int(0.95 * len(late))] < 0.05


def test_nothing_runs_when_nothing_happens(program: Program, qtbot: QtBot) -> None:
    program.app.controller.send("go")
    program.wait_idle()
    qtbot.wait(1500)
    timers = [t for t in program.app.findChildren(QTimer) + program.app.window.findChildren(QTimer) if t.isActive()]
    assert [(timer.parent(), timer.interval()) for timer in timers] == []


def test_the_picker_lists_what_is_there(program: Program, qtbot: QtBot, tmp_path: Path) -> None:
    pytest.importorskip("cext.scan")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "broken.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    for case in ("bert-cls", "t5"):
        shutil.copy(DATA / case / "model.gguf", tmp_path / "models" / f"{case}.gguf")
    program.app.settings.model_folders = (str(tmp_path / "models"),)
    catalogue = program.app.controller.catalogue
    with qtbot.waitSignal(catalogue.refreshed, timeout=10_000):
        catalogue.refresh()
    entries = {entry.path.name: entry for entry in catalogue.entries()}
    assert "damaged" in entries["broken.gguf"].problem
    assert entries["bert-cls.gguf"].problem == "It makes vectors of texts and cannot chat"
    assert entries["t5.gguf"].problem == "It answers one text at a time and cannot chat"


def test_the_picker_hears_of_new_files(program: Program, qtbot: QtBot, tmp_path: Path) -> None:
    pytest.importorskip("cext.scan")
    (tmp_path / "models").mkdir()
    program.app.settings.model_folders = (str(tmp_path / "models"),)
    catalogue = program.app.controller.catalogue
    with qtbot.waitSignal(catalogue.refreshed, timeout=10_000):
        catalogue.refresh()
    qtbot.wait(200)
    shutil.copy(DATA / "bert-cls" / "model.gguf", tmp_path / "models" / "new.gguf")
    qtbot.waitUntil(lambda: "new" in {entry.name for entry in catalogue.entries()}, timeout=10_000)


def test_a_second_process_on_the_folder_is_refused_and_heard(qtbot: QtBot, tmp_path: Path) -> None:
    first, second = SingleInstance(tmp_path), SingleInstance(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    with qtbot.waitSignal(first.show_requested):
        assert second.ask_first_to_show()
    first.release()
    assert second.acquire()
    assert not first.acquire() and first.is_held()
    second.release()


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    command = [sys.executable, "-m", "app", "--data", str(tmp_path / "file" / "data")]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert child.returncode == 1
    assert child.stderr.startswith("causerie: The data folder cannot be made") and child.stderr.count("\n") == 1


def test_without_a_database_file_the_window_works_and_says_so(
    qtbot: QtBot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data" / "causerie.db").mkdir(parents=True)
    program = Program(qtbot, tmp_path, FakeEngine())
    assert "storage" in caplog.text
    program.app.controller.send("one two three")
    program.wait_idle()
    assert program.texts()[1] == ("w0 w1 w2 w3 w4 ", "done")
    chat_id = program.app.controller.conversation.chat_id
    program.app.controller.new_chat()
    assert chat_id is not None
    program.app.controller.open_chat(chat_id)
    qtbot.waitUntil(lambda: len(program.texts()) == 2, timeout=PATIENCE_MS)
    program.close()


@pytest.mark.skipif(os.name == "nt", reason="needs SIGTERM")
def test_a_signal_closes_the_program_cleanly(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "app", "--data", str(tmp_path / "data")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
    )
    until = time.monotonic() + 20
    while not (tmp_path / "data" / "causerie.db").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.3)
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == 0
    assert child.stderr is not None
    said = child.stderr.read().decode()
    child.stderr.close()
    assert "Destroyed while" not in said and "Traceback" not in said
