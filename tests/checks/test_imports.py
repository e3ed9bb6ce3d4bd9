"""Importing the program's packages opens no connection, starts no thread and says nothing."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib, socket, sys, threading

def refuse(*args, **kwargs):
    raise AssertionError("a connection at import")

socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
assert threading.active_count() == 1, threading.enumerate()
"""


def modules_of(package: str) -> list[str]:
    found = pkgutil.walk_packages([str(ROOT / package)], f"{package}.")
    return [package, *(module.name for module in found if not module.name.endswith("__main__"))]


@pytest.mark.parametrize("package", ["cext", "engine", "app"])
def test_importing_does_nothing_else(package: str) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *modules_of(package)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_engine_loads_no_qt() -> None:
    program = PROGRAM + "\nassert not any(name.startswith('PySide6') for name in sys.modules)"
    command = [sys.executable, "-c", program, *modules_of("engine")]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 0
