"""The comparison survives a peer that is missing or crashes, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models import ROOT

TINY = ROOT / "tests" / "data" / "llama" / "model.gguf"

CRASH = """#!/bin/sh
kill -ILL $$
"""


@pytest.mark.skipif(sys.platform == "win32", reason="runs a shell script")
@pytest.mark.parametrize("kind", ["missing", "crashing"])
def test_a_peer_that_does_not_answer(kind: str, tmp_path: Path) -> None:
    peer = sys.executable
    if kind == "crashing":
        (tmp_path / "python").write_text(CRASH)
        (tmp_path / "python").chmod(0o755)
        peer = str(tmp_path / "python")
    command = [sys.executable, "tests/bench/compare_peer.py", str(TINY), "--peer-python", peer, "-r", "2"]
    command += ["-t", "2", "-p", "20", "-n", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (result,) = json.loads(done.stdout)["models"]
    assert ("SIGILL" if kind == "crashing" else "llama_cpp") in result["peer"]["error"]
    assert len(result["own"]["pp"]) == len(result["own"]["tg"]) == len(result["own"]["greedy"]) == 2
    assert result["ratio"] == {}
    assert "own" in done.stderr
