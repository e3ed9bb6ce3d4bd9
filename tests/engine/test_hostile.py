"""Five hundred damaged files of each kind: a sentence each or a working model; no crash, no hang, memory bounded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.models import ROOT

N_FILES = 500


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.parametrize(("kind", "n_refused_min"), [("gguf", 100), ("template", 50), ("lora", 100), ("cvec", 100)])
def test_damaged_files_end_in_a_sentence(kind: str, n_refused_min: int) -> None:
    command = [sys.executable, "-m", "tests.engine.hostile", kind, "0", str(N_FILES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert n_refused_min < int(done.stdout) < N_FILES
