from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from app.bridge.client import EngineClient
from app.bridge.messages import (
    EngineEvent,
    JobFailed,
    ModelLoaded,
    ModelLoading,
    PrefillProgress,
    PromptMessage,
    ReplyFinished,
    ReplyStarted,
    Sampling,
    SessionNotSaved,
    SessionSaved,
    TextChunk,
)
from app.bridge.pool import N_SESSIONS
from tests.app.fake_engine import FakeEngine

PATIENCE_MS = 30_000


class Recorder(QObject):
    """Keeps the events of a client in order."""

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self.events: list[EngineEvent] = []
        self.times: list[float] = []
        client.happened.connect(self.on_happened)

    def on_happened(self, event: EngineEvent) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.events.append(event)
        self.times.append(time.monotonic())

    def finished(self, job_id: int) -> ReplyFinished | None:
        return next((e for e in self.events if isinstance(e, ReplyFinished) and e.job_id == job_id), None)

    def text(self, job_id: int) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextChunk) and e.job_id == job_id)

    def of(self, kind: type[object]) -> list[EngineEvent]:
        return [e for e in self.events if isinstance(e, kind)]


class Bench:
    """A client on a fake engine, with its recorder and a model file."""

    def __init__(self, folder: Path, engine: FakeEngine) -> None:
        self.engine = engine
        self.sessions = folder / "sessions"
        self.model = folder / "model.gguf"
        self.model.write_text("fine")
        self.client = EngineClient(self.sessions, lambda: engine)
        self.recorder = Recorder(self.client)
        self.client.start()

    def load(self, qtbot: QtBot) -> None:
        self.client.load_model(str(self.model))
        qtbot.waitUntil(lambda: bool(self.recorder.of(ModelLoaded)), timeout=PATIENCE_MS)

    def generate(self, chat_id: int, text: str, reply_id: int = 100, n_ctx: int = 0) -> int:
        messages = (PromptMessage(reply_id - 1, "user", text),)
        return self.client.generate(chat_id, reply_id, messages, Sampling(), 1000, n_ctx, frozenset(), "")

    def wait(self, qtbot: QtBot, job_id: int) -> ReplyFinished:
        qtbot.waitUntil(lambda: self.recorder.finished(job_id) is not None, timeout=PATIENCE_MS)
        event = self.recorder.finished(job_id)
        assert event is not None
        return event


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path, engine: FakeEngine) -> Iterator[Bench]:
    bench = Bench(tmp_path, engine)
    yield bench
    assert bench.client.shutdown(5000)
    assert engine.open_sessions == engine.open_copies == engine.n_loaded == 0


def test_a_reply_arrives_in_order_and_off_the_gui_thread(qtbot: QtBot, bench: Bench) -> None:
    bench.load(qtbot)
    job_id = bench.generate(1, "one two three")
    finished = bench.wait(qtbot, job_id)
    assert bench.recorder.text(job_id) == "w0 w1 w2 w3 w4 "
    assert (finished.finish, finished.stats.n_generated, finished.n_used) == ("stop", 5, 8)
    assert finished.token_ids == b"".join(i.to_bytes(4, "little") for i in range(5))
    assert finished.model_fp == "fp-model"
    kinds = [type(e) for e in bench.recorder.events if getattr(e, "job_id", None) == job_id]
    assert kinds[0] is ReplyStarted and kinds[-1] is ReplyFinished
    assert kinds.index(PrefillProgress) < kinds.index(TextChunk)
    assert bench.engine.threads and threading.get_ident() not in bench.engine.threads
    qtbot.waitUntil(lambda: bool(bench.recorder.of(SessionSaved)), timeout=PATIENCE_MS)


def test_text_is_told_at_most_thirty_times_a_second(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    engine.n_words, engine.delay_s = 400, 0.002
    bench.load(qtbot)
    job_id = bench.generate(1, "go")
    began = time.monotonic()
    bench.wait(qtbot, job_id)
    elapsed = time.monotonic() - began
    chunks = bench.recorder.of(TextChunk)
    assert 2 < len(chunks) <= 30 * elapsed + 2
    assert bench.recorder.text(job_id) == "".join(f"w{i} " for i in range(400))


def test_stop_acts_at_once(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    engine.n_words, engine.delay_s = 1000, 0.5
    bench.load(qtbot)
    job_id = bench.generate(1, "go")
    qtbot.waitUntil(lambda: bool(bench.recorder.of(PrefillProgress)), timeout=PATIENCE_MS)
    began = time.monotonic()
    bench.client.cancel(job_id)
    finished = bench.wait(qtbot, job_id)
    assert finished.finish == "cancelled"
    assert time.monotonic() - began < 0.3


def test_replies_of_several_chats_are_made_at_once(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    engine.n_words, engine.delay_s = 20, 0.01
    bench.load(qtbot)
    first, second, third = (bench.generate(i, "go", 100 * i) for i in (1, 2, 3))
    bench.client.cancel(second)
    assert bench.wait(qtbot, third).finish == "stop"
    assert bench.wait(qtbot, first).finish == "stop"
    assert bench.wait(qtbot, second).finish == "cancelled"
    events = [(type(e), e.job_id) for e in bench.recorder.events if isinstance(e, (ReplyStarted, ReplyFinished))]
    assert events.index((ReplyStarted, third)) < events.index((ReplyFinished, first))
    assert bench.recorder.text(first) == bench.recorder.text(third) != ""


def test_a_reply_beyond_the_last_place_waits_and_can_be_stopped(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    engine.n_words, engine.delay_s = 1000, 0.01
    bench.load(qtbot)
    running = [bench.generate(i, "go", 100 * i) for i in range(1, N_SESSIONS + 1)]
    stopped, waiting = bench.generate(50, "go", 5000), bench.generate(51, "go", 5100)
    qtbot.waitUntil(lambda: len(bench.recorder.of(ReplyStarted)) == N_SESSIONS, timeout=PATIENCE_MS)
    bench.client.cancel(stopped)
    assert bench.wait(qtbot, stopped).finish == "cancelled"
    assert bench.recorder.finished(waiting) is None
    engine.n_words = 3
    bench.client.cancel(running[0])
    assert bench.wait(qtbot, waiting).finish == "stop"
    assert all(bench.recorder.finished(job_id) is None for job_id in running[1:])
    for job_id in running:
        bench.client.cancel(job_id)
        bench.wait(qtbot, job_id)


def test_a_chat_that_is_opened_is_read_from_its_file(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    bench.load(qtbot)
    bench.wait(qtbot, bench.generate(1, "alpha beta"))
    qtbot.waitUntil(lambda: bool(bench.recorder.of(SessionSaved)), timeout=PATIENCE_MS)
    bench.client.forget_chat(1)
    qtbot.waitUntil(lambda: engine.open_sessions == 0, timeout=PATIENCE_MS)
    bench.client.restore_chat(1, 0)
    qtbot.waitUntil(lambda: engine.open_sessions == 1, timeout=PATIENCE_MS)
    bench.client.restore_chat(2, 0)
    assert bench.wait(qtbot, bench.generate(1, "alpha beta w0 w1 w2 w3 w4 on", 102)).stats.n_computed == 1
    assert engine.open_sessions == 1


def test_a_temporary_chat_writes_nothing(qtbot: QtBot, bench: Bench) -> None:
    bench.load(qtbot)
    messages = (PromptMessage(1, "user", "secret"),)
    job_id = bench.client.generate(7, 2, messages, Sampling(), 10, 0, frozenset(), "", True)
    bench.wait(qtbot, job_id)
    bench.client.forget_chat(7)
    bench.wait(qtbot, bench.generate(1, "go"))
    qtbot.waitUntil(lambda: bool(bench.recorder.of(SessionSaved)), timeout=PATIENCE_MS)
    assert [path.name for path in bench.sessions.iterdir()] == ["1.fp-model.kv"]


def test_no_file_is_written_while_the_disk_is_nearly_full(
    qtbot: QtBot, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bridge.writer.MIN_FREE_BYTES", 1 << 60)
    bench.load(qtbot)
    assert bench.wait(qtbot, bench.generate(1, "one two")).finish == "stop"
    qtbot.waitUntil(lambda: bool(bench.recorder.of(SessionNotSaved)), timeout=PATIENCE_MS)
    (event,) = bench.recorder.of(SessionNotSaved)
    assert isinstance(event, SessionNotSaved) and "less than 2 GB" in event.reason
    assert list(bench.sessions.iterdir()) == []


def test_an_error_ends_the_reply_and_not_the_thread(
    qtbot: QtBot, bench: Bench, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.fail_after = 2
    bench.load(qtbot)
    job_id = bench.generate(1, "go")
    finished = bench.wait(qtbot, job_id)
    assert finished.finish == "failed"
    assert finished.error is not None and str(finished.error) == "It broke: out of words. Mend it."
    assert bench.recorder.text(job_id) == "w0 w1 "
    assert "Traceback" in caplog.text
    engine.fail_after = None
    assert bench.wait(qtbot, bench.generate(1, "go")).finish == "stop"


def test_no_model_is_said(qtbot: QtBot, bench: Bench) -> None:
    finished = bench.wait(qtbot, bench.generate(1, "go"))
    assert finished.error is not None and "No model" in finished.error.sentence


def test_loading_tells_progress_and_what_is_wrong(
    qtbot: QtBot, bench: Bench, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.load_s = 0.3
    bench.load(qtbot)
    fractions = [e.fraction for e in bench.recorder.of(ModelLoading) if isinstance(e, ModelLoading)]
    assert len(fractions) >= 3 and fractions == sorted(fractions)
    bad = tmp_path / "bad.gguf"
    bad.write_text("damaged")
    job_id = bench.client.load_model(str(bad))
    qtbot.waitUntil(lambda: bool(bench.recorder.of(JobFailed)), timeout=PATIENCE_MS)
    (failed,) = bench.recorder.of(JobFailed)
    assert isinstance(failed, JobFailed) and failed.job_id == job_id


def test_a_newer_load_replaces_the_one_under_way(
    qtbot: QtBot, bench: Bench, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.load_s = 1.0
    other = tmp_path / "other.gguf"
    other.write_text("fine")
    bench.client.load_model(str(bench.model))
    qtbot.waitUntil(lambda: bool(bench.recorder.of(ModelLoading)), timeout=PATIENCE_MS)
    engine.load_s = 0.0
    bench.client.load_model(str(other))
    qtbot.waitUntil(lambda: bool(bench.recorder.of(ModelLoaded)), timeout=PATIENCE_MS)
    loaded = [e.info.name for e in bench.recorder.events if isinstance(e, ModelLoaded)]
    assert loaded == ["other"]


def test_memory_survives_in_files_and_few_chats_are_held(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    bench.load(qtbot)
    for chat_id in range(1, N_SESSIONS + 4):
        bench.wait(qtbot, bench.generate(chat_id, f"alpha beta {chat_id}", 10 * chat_id))
    assert engine.max_open_sessions == N_SESSIONS
    finished = bench.wait(qtbot, bench.generate(1, "alpha beta 1 w0 w1 w2 w3 w4 more", 200))
    assert (finished.stats.n_reused, finished.stats.n_computed) == (8, 1)


def test_memory_is_saved_at_shutdown_and_read_at_the_next_start(
    qtbot: QtBot, tmp_path: Path, engine: FakeEngine
) -> None:
    bench = Bench(tmp_path, engine)
    bench.load(qtbot)
    engine.n_words, engine.delay_s = 1000, 0.005
    job_id = bench.generate(1, "alpha beta")
    qtbot.waitUntil(lambda: bool(bench.recorder.of(TextChunk)), timeout=PATIENCE_MS)
    began = time.monotonic()
    assert bench.client.shutdown(5000)
    assert time.monotonic() - began < 1
    qtbot.waitUntil(lambda: bench.recorder.finished(job_id) is not None, timeout=PATIENCE_MS)
    text = bench.recorder.text(job_id)
    engine.n_words, engine.delay_s = 3, 0.0
    again = Bench(tmp_path, engine)
    again.load(qtbot)
    finished = again.wait(qtbot, again.generate(1, f"alpha beta {text} more"))
    assert finished.stats.n_computed == 1
    assert again.client.shutdown(5000)


def test_a_damaged_session_file_is_said_and_computed_anew(qtbot: QtBot, bench: Bench) -> None:
    bench.load(qtbot)
    bench.sessions.mkdir(exist_ok=True)
    (bench.sessions / "1.fp-model.kv").write_text("not json")
    finished = bench.wait(qtbot, bench.generate(1, "one two"))
    assert finished.finish == "stop" and finished.stats.n_computed == 2
    assert "damaged" in finished.note


def test_a_reply_does_not_wait_for_the_disk(qtbot: QtBot, bench: Bench, engine: FakeEngine) -> None:
    engine.save_s = 1.0
    bench.load(qtbot)
    bench.wait(qtbot, bench.generate(1, "one two"))
    qtbot.waitUntil(lambda: engine.open_copies == 1, timeout=PATIENCE_MS)
    bench.wait(qtbot, bench.generate(1, "one two w0 w1 w2 w3 w4 three", 102))
    assert bench.recorder.of(SessionSaved) == []
    engine.save_s = 0.0
    qtbot.waitUntil(lambda: len(bench.recorder.of(SessionSaved)) == 2, timeout=PATIENCE_MS)
    assert engine.open_copies == 0


def test_a_full_disk_costs_no_text(qtbot: QtBot, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: object, path: Path) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tests.app.fake_engine.FakeCopy.write", write)
    bench.load(qtbot)
    assert bench.wait(qtbot, bench.generate(1, "one two")).finish == "stop"
    qtbot.waitUntil(lambda: bool(bench.recorder.of(SessionNotSaved)), timeout=PATIENCE_MS)


class Emitter(QObject):
    """Emits True, as the binding lost a reference to it at every emit in one of its versions."""

    told = Signal(bool)
    told_object = Signal(object)


def test_emitting_true_keeps_its_references(qtbot: QtBot) -> None:
    emitter = Emitter()
    seen: list[object] = []
    emitter.told.connect(seen.append)
    emitter.told_object.connect(seen.append)
    before = sys.getrefcount(True)
    for _ in range(200):
        emitter.told.emit(True)
        emitter.told_object.emit(True)
    seen.clear()
    # Since CPython 3.12 True is immortal and its count never moves.
    assert abs(sys.getrefcount(True) - before) < 20
