"""Decide how the program starts: in a window, as a terminal chat where there is no display, or not at all.

The first station of `python -m app`, before Qt is loaded. Starts the engine's own command line as a process of its own;
imports nothing of the engine.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
HEADLESS_PLATFORMS = ("offscreen", "minimal", "vnc", "linuxfb", "eglfs")
"""Values of QT_QPA_PLATFORM that need no display server."""


def launch(arguments: Sequence[str], open_window: Callable[[Sequence[str]], int]) -> int:
    """Start the program in the way that this place allows.

    Args:
        arguments: of the command line, without the program's name; the first that is no option may name a model.
        open_window: loads Qt and runs the window until it is closed; answers the exit status.
    Returns: the exit status; 0 where there is neither display nor input.
    """
    problem = display_problem()
    if not problem:
        return open_window(arguments)
    if not has_input(0):
        print(f"{problem}, and there is no input to chat with in the terminal: nothing to do.", file=sys.stderr)
        return 0
    model = terminal_model(arguments)
    if model is None:
        print(f"{problem}, and there is no model for the terminal chat: name one on the command line.", file=sys.stderr)
        return 1
    print(f"{problem}: starting the terminal chat with {model.name}.", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "engine", "chat", str(model)]
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.run(command).returncode


def default_models_folder() -> Path:
    """Where `make run` puts the model that it fetches."""
    return Path(__file__).resolve().parent.parent / "build" / "models"


def display_problem() -> str:
    """Why no window can open here, as the start of a sentence; empty where one can."""
    if (
        not sys.platform.startswith("linux")
        or os.environ.get("QT_QPA_PLATFORM", "").split(":")[0] in HEADLESS_PLATFORMS
    ):
        return ""
    wayland, x11 = os.environ.get("WAYLAND_DISPLAY", ""), os.environ.get("DISPLAY", "")
    if not wayland and not x11:
        return "There is no display"
    if wayland and _answers(socket.AF_UNIX, os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/"), wayland)):
        return ""
    if x11 and _x11_answers(x11):
        return ""
    return f"The display {x11 or wayland} cannot be reached"


def has_input(descriptor: int) -> bool:
    """Whether someone can be read from: a terminal, or a pipe or file with something in it.

    Waits for a pipe until something is written to it or its other end is closed. Reads nothing.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        if os.isatty(descriptor):
            return True
        if stat.S_ISREG(mode):
            return os.fstat(descriptor).st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        if stat.S_ISFIFO(mode) and os.name == "posix":
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return any(event & select.POLLIN for _, event in poll.poll())
        if stat.S_ISSOCK(mode):
            with socket.socket(fileno=os.dup(descriptor)) as peer:
                return bool(peer.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
    return False


def terminal_model(arguments: Sequence[str]) -> Path | None:
    """The model for the terminal chat: the one named, else the default one where it was fetched."""
    for argument in arguments:
        if not argument.startswith("-"):
            return Path(argument)
    default = default_models_folder() / DEFAULT_MODEL
    return default if default.is_file() else None


def _x11_answers(display: str) -> bool:
    """Whether an X server listens. Source: X(7), "DISPLAY NAMES": host:number.screen."""
    host, _, number = display.rpartition(":")
    number = number.split(".")[0]
    if not number.isdigit():
        return False
    if host.startswith("/"):  # XQuartz and the like name a socket
        return _answers(socket.AF_UNIX, f"{host}:{number}")
    path = f"/tmp/.X11-unix/X{number}"
    if host in ("", "unix"):
        return _answers(socket.AF_UNIX, path) or _answers(socket.AF_UNIX, f"\0{path}")
    return _answers(socket.AF_INET, (host, 6000 + int(number)))


def _answers(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address)
        except (OSError, OverflowError):
            return False
    return True
