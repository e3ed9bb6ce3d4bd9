"""What every test gets: no display, no settings or data of the person who runs them, and a guard against leaked threads."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.garbage import collect_due

# Before Qt or platformdirs is loaded by any test module.
_HOME = tempfile.mkdtemp(prefix="causerie-tests-")
for _name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
    _folder = Path(_HOME, _name.removeprefix("XDG_").lower())
    _folder.mkdir(mode=0o700)
    os.environ[_name] = str(_folder)
os.environ["CAUSERIE_DATA"] = str(Path(_HOME, "causerie"))
os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the program does: numpy's threads never end
for _name in ("DISPLAY", "WAYLAND_DISPLAY"):
    os.environ.pop(_name, None)

QT_THREADS = ("engine", "storage", "catalogue", "hub", "fetch", "exchange")
"""Names of the program's own QThreads; the system shows them as the names of the threads."""
GRACE_S = 2.0


def pytest_configure() -> None:
    """Leave garbage to `pytest_runtest_logfinish`: a thread of one test must not tear down widgets of another."""
    gc.disable()


def pytest_runtest_logfinish() -> None:
    """Collect on the main thread, between tests."""
    collect_due()


def pytest_unconfigure() -> None:
    """Remove the folder that stood in for a home."""
    shutil.rmtree(_HOME, ignore_errors=True)


def program_threads() -> set[str]:
    """Threads that a test may not leave behind: Python's, and the program's QThreads by name."""
    threads = {f"{t.name} ({t.ident})" for t in threading.enumerate() if not isinstance(t, threading._DummyThread)}
    tasks = Path("/proc/self/task")
    for task in tasks.iterdir() if tasks.is_dir() else ():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # it ended while we looked
            continue
        if name in QT_THREADS:
            threads.add(f"{name} ({task.name})")
    return threads


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread running."""
    before = program_threads()
    yield
    deadline = time.monotonic() + GRACE_S
    while (leaked := program_threads() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not leaked, f"threads left running: {', '.join(sorted(leaked))}"


@pytest.fixture(scope="session")
def xvfb_display() -> Iterator[str]:
    """The DISPLAY of an X server of our own, for processes that open the real window with the xcb plugin."""
    if not sys.platform.startswith("linux") or shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed (Debian: apt-get install xvfb)")
    read_end, write_end = os.pipe()
    command = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"]
    server = subprocess.Popen(command, pass_fds=[write_end], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as answer:
            number = answer.readline().strip()
        assert number, "Xvfb did not start"
        yield f":{number}"
    finally:
        server.terminate()
        server.wait(timeout=10)
