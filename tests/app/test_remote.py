"""Remote models: the same reply as from here, stopped, refused, broken off; and what their files may say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QDialog
from pytestqt.qtbot import QtBot

from app.application import Application
from app.bridge.cancel import JobCancel
from app.bridge.engines import Engines
from app.bridge.entries import judge_entry, read_entry
from app.bridge.messages import EngineOptions, Generate, PromptMessage, Sampling
from app.bridge.places import is_model_name
from app.bridge.port import Broken, Ended, Generated, PortEvent
from app.bridge.programs import FoundFile
from app.bridge.remote_engine import RemoteModel
from app.models import ChatController, Phase
from app.remote import keys
from app.remote.endpoint import SUFFIX, EndpointError, RemoteEndpoint, load_endpoint, save_endpoint
from app.remote.stream import RemoteError, RemoteStream
from app.windows.remote_dialog import RemoteDialog
from engine.server.config import ServerConfig
from tests.engine.server.serving import Local, serving, wait_until

QUESTION = [{"role": "user", "content": "how tall is a giraffe"}]


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of this run only: the keyring of whoever runs the tests is left alone."""
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)
    monkeypatch.setattr(keys, "_this_run", {})


def endpoint_of(local: Local) -> RemoteEndpoint:
    return RemoteEndpoint(f"{local.server.url}/v1", "tiny")


def request(n_predict: int) -> Generate:
    message = PromptMessage(1, "user", QUESTION[0]["content"])
    return Generate(1, 1, 2, (message,), Sampling(temperature=0.0), n_predict, 0)


def replied(model: RemoteModel, n_predict: int, cancel: JobCancel | None = None) -> list[PortEvent]:
    events: list[PortEvent] = []
    session = model.open_session(0)
    session.start(request(n_predict), cancel or JobCancel(), events.append)
    wait_until(lambda: bool(events) and isinstance(events[-1], (Ended, Broken)))
    session.close()
    return events


def test_the_reply_of_our_own_server(tmp_path: Path) -> None:
    with serving() as local:
        path = save_endpoint(endpoint_of(local), tmp_path)
        model = Engines().load_model(path, None, EngineOptions(), lambda share: None)
        assert isinstance(model, RemoteModel)
        assert "Another program on this computer" in model.info.note
        events = replied(model, 8)
        expected = local.post("/v1/chat/completions", messages=QUESTION, max_tokens=8, temperature=0).json
        text = "".join(event.text for event in events if isinstance(event, Generated))
        assert text == expected["choices"][0]["message"]["content"]
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert ended.finish == expected["choices"][0]["finish_reason"]
        model.close()


def test_stopping_frees_the_server(tmp_path: Path) -> None:
    with serving(n_ctx=100_000) as local:
        stream = RemoteStream(endpoint_of(local), "")
        done: list[str] = []
        params = {"max_tokens": 10**6, "ignore_eos": True}
        thread = threading.Thread(target=lambda: done.append(stream.run(QUESTION, params, lambda text: None).finish))
        thread.start()
        wait_until(lambda: local.n_busy() == 1)
        stream.stop()
        thread.join(10)
        assert done == ["cancelled"]
        wait_until(lambda: local.n_busy() == 0)
        late = RemoteStream(endpoint_of(local), "")
        late.stop()
        assert late.run(QUESTION, {}, lambda text: None).finish == "cancelled"


def test_keys_and_refusals(tmp_path: Path) -> None:
    with serving(ServerConfig(port=0, api_key="secret")) as local:
        model = RemoteModel(save_endpoint(endpoint_of(local), tmp_path))
        broken = replied(model, 2)[-1]
        assert isinstance(broken, Broken)
        assert "the key is missing or wrong" in str(broken.error)
        explained = Engines().explain(broken.error)
        assert explained.remedy
        assert not keys.keep_key(model.endpoint.url, "secret")
        assert isinstance(replied(model, 2)[-1], Ended)
    with pytest.raises(RemoteError, match="did not answer"):
        RemoteStream(RemoteEndpoint("http://127.0.0.1:1/v1", "x"), "").run(QUESTION, {}, lambda text: None)


class Odd(BaseHTTPRequestHandler):
    """Answers every request with the bytes that are set."""

    answer = b""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)


@pytest.fixture
def odd() -> Iterator[RemoteEndpoint]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield RemoteEndpoint(f"http://127.0.0.1:{server.server_address[1]}/v1", "x")
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "broke off"),
        (b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', "broke off"),
        (b"data: {nonsense\n\n", "no JSON"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "no JSON"),
        (b"x" * (2 << 20), "without an end"),
        (b'data: {"error": {"message": "out of\\n memory"}}\n\n', "out of memory"),
    ],
)
def test_odd_answers_end_in_a_sentence(odd: RemoteEndpoint, answer: bytes, said: str) -> None:
    Odd.answer = answer
    with pytest.raises(RemoteError, match=said):
        RemoteStream(odd, "").run(QUESTION, {}, lambda text: None)


@pytest.mark.parametrize(
    "value",
    [
        "null",
        "[]",
        "3",
        '{"choices": 3}',
        '{"choices": [3]}',
        '{"choices": [{"delta": 3}]}',
        '{"usage": {"prompt_tokens": "x"}}',
    ],
)
def test_odd_events_are_passed_over(odd: RemoteEndpoint, value: str) -> None:
    Odd.answer = f"data: {value}\n\ndata: [DONE]\n\n".encode()
    assert RemoteStream(odd, "").run(QUESTION, {}, lambda text: None).finish == "stop"


def test_the_file_of_a_remote_model(tmp_path: Path) -> None:
    endpoint = RemoteEndpoint("https://api.example.org/v1", "org/model: large")
    path = save_endpoint(endpoint, tmp_path)
    assert path.parent == tmp_path
    assert load_endpoint(path) == endpoint
    assert is_model_name(path.name)
    entry = read_entry(FoundFile(path, "", "here"))
    assert entry is not None
    assert "Text leaves this computer: it goes to api.example.org" in entry.note
    assert judge_entry(entry) == entry
    bad = tmp_path / f"bad{SUFFIX}"
    for text in ("", "{", "[]", "null", '{"url": 3, "model": "x"}', '{"url": "http://a", "model": ""}', "[" * 50_000):
        bad.write_text(text)
        entry = read_entry(FoundFile(bad, "", "here"))
        assert entry is not None
        assert entry.problem
    for url in (
        "",
        "file:///etc/passwd",
        "ftp://a",
        "http://",
        "http://a b",
        "http://user:key@a/v1",
        "http://[x",
        "http://a:99999999",
    ):
        with pytest.raises(EndpointError):
            RemoteEndpoint(url, "x")


def test_the_dialog_adds_one(qtbot: QtBot, tmp_path: Path) -> None:
    dialog = RemoteDialog(tmp_path, None)
    qtbot.addWidget(dialog)
    dialog._url_edit.setText("example.org")
    dialog.accept()
    assert "https://" in dialog._status_label.text()
    dialog._url_edit.setText("https://example.org/v1/")
    dialog._model_edit.setText("large")
    dialog._key_edit.setText("secret")
    dialog.accept()
    assert dialog.result() == QDialog.DialogCode.Accepted
    assert dialog.path is not None
    assert json.loads(dialog.path.read_text())["url"] == "https://example.org/v1"
    assert "secret" not in dialog.path.read_text()
    assert not dialog.is_key_kept
    assert keys.key_of("https://example.org/v1") == "secret"


def wait_for(qtbot: QtBot, controller: ChatController, n_messages: int) -> None:
    def is_done() -> bool:
        items = controller.conversation.items()
        return len(items) == n_messages and items[-1].state == "done" and controller.generation.phase is Phase.IDLE

    qtbot.waitUntil(is_done, timeout=20_000)


def test_a_chat_with_a_remote_model_in_the_program(qtbot: QtBot, tmp_path: Path) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    (tmp_path / "data").mkdir()
    with serving(n_ctx=4000) as local:
        path = save_endpoint(endpoint_of(local), tmp_path)
        program = Application(app, tmp_path / "data", Engines)
        controller = program.controller
        program.settings.n_predict = 16
        with qtbot.waitSignal(controller.ready, timeout=20_000):
            program.start(str(path))
        model_name = f"tiny ({local.address[0]}:{local.address[1]})"
        qtbot.waitUntil(lambda: controller.generation.phase is Phase.IDLE, timeout=20_000)
        qtbot.waitUntil(lambda: "Another program on this computer" in controller.generation.note, timeout=20_000)
        for n_messages in (2, 4):
            controller.send("how tall is a giraffe")
            wait_for(qtbot, controller, n_messages)
            assert controller.generation.model_name == model_name
        assert local.metric("requests_total") == 2
        assert not list((tmp_path / "data").rglob("*.session"))
        program.window.close()
        assert program.shutdown()
        program.window.deleteLater()
        program.deleteLater()
        QApplication.sendPostedEvents(None, int(QEvent.Type.DeferredDelete.value))
