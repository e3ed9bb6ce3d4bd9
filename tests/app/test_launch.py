"""How the program starts: the window, the terminal chat, or a word and nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.launch import display_problem, has_input, launch, terminal_model


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)


def no_window(arguments: Sequence[str]) -> int:
    raise AssertionError("the window was opened")


def test_a_headless_platform_opens_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    opened: list[Sequence[str]] = []

    def open_window(arguments: Sequence[str]) -> int:
        opened.append(arguments)
        return 7

    assert launch(["x.gguf"], open_window) == 7
    assert opened == [["x.gguf"]]


@pytest.mark.usefixtures("no_display")
def test_no_display() -> None:
    assert display_problem() == "There is no display"


@pytest.mark.usefixtures("no_display")
@pytest.mark.parametrize("display", [":987654", "unix:987654", "nonsense", ":", ":-1", ":99999999999", "/tmp/none:0"])
def test_a_display_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, display: str) -> None:
    monkeypatch.setenv("DISPLAY", display)
    assert display_problem() == f"The display {display} cannot be reached"


@pytest.mark.usefixtures("no_display")
def test_a_wayland_socket_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-7")
    assert "wayland-7 cannot be reached" in display_problem()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wayland-7"))
        server.listen()
        assert display_problem() == ""


def test_input_of_files_and_devices(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("hello\n")
    with path.open() as file:
        assert has_input(file.fileno())
        os.lseek(file.fileno(), 0, os.SEEK_END)
        assert not has_input(file.fileno())
    with Path(os.devnull).open() as file:
        descriptor = file.fileno()
        assert not has_input(descriptor)
    assert not has_input(descriptor)


def test_input_of_pipes_and_sockets() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"hello\n")
    assert has_input(read_end)
    assert os.read(read_end, 100) == b"hello\n", "looking must not read"
    os.close(write_end)
    assert not has_input(read_end)
    os.close(read_end)
    here, there = socket.socketpair()
    with here, there:
        there.send(b"x")
        assert has_input(here.fileno())
        assert here.recv(10) == b"x"
        there.shutdown(socket.SHUT_WR)
        assert not has_input(here.fileno())


def test_terminal_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("app.launch.default_models_folder", lambda: tmp_path)
    assert terminal_model(["--x", "a.gguf"]) == Path("a.gguf")
    assert terminal_model([]) is None
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").touch()
    assert terminal_model([]) == tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"


def run_launch(tail: str, stdin: int | None, text: str | None = None) -> subprocess.CompletedProcess[str]:
    program = f"import sys; from app.launch import launch; sys.exit(launch([{tail}], lambda arguments: 9))"
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    return subprocess.run([sys.executable, "-c", program], env=environment, stdin=stdin, input=text, text=True,
                          capture_output=True, timeout=60)  # fmt: skip


def test_neither_display_nor_input() -> None:
    done = run_launch("", subprocess.DEVNULL)
    assert done.returncode == 0
    assert done.stderr == "There is no display, and there is no input to chat with in the terminal: nothing to do.\n"


def test_input_but_no_display_starts_the_terminal_chat() -> None:
    done = run_launch("'absent.gguf'", None, "hello\n")
    assert done.returncode != 9
    assert done.stderr.startswith("There is no display: starting the terminal chat with absent.gguf.\n")
