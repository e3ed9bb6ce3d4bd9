"""Instructions of three kernels, held within 3 %: a count repeats where seconds on a busy machine do not.

Counted by callgrind with the AVX2 kernels, for it knows no AVX-512. The counts are those of one compiler; with another the
test is skipped. Where a change was meant to move them, the numbers here are what it moved them to.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = "12.2.0"
COUNTS = {"one token": 30_390, "many tokens": 383_704, "attention of one token": 569_661}
KERNELS = {"one token": "::one_token", "many tokens": "::mul_tile", "attention of one token": "::direct_"}
WORK = """
import numpy as np
from cext import kernel_rows
from cext.kernel_matmul import PackedWeights
from engine.types import QuantType
from tests.bench.attention import Layer
from tests.cext.quant_blocks import random_rows

rows = random_rows(np.random.default_rng(1), QuantType.Q4_K, 64, 1024)
packed = PackedWeights(QuantType.Q4_K, 64, 1024, rows)
x = np.random.default_rng(2).standard_normal((32, 1024)).astype(np.float32)
packed.mul(x[:1], "avx2", n_terms=2)
packed.mul(x, "avx2")
Layer(1, (9, 3, 64), 1, 1024, 3).measure(1, 1024, 1, 1)
"""


def self_counts(path: Path) -> Counter[str]:
    """Instructions of each function by itself. Source: "Callgrind Format Specification" of valgrind's manual."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    function, is_call = "", False
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("fn="):
            number, _, name = line[3:].partition(" ")
            function = names.setdefault(number, name)
        elif line.startswith("cfn="):
            number, _, name = line[4:].partition(" ")
            names.setdefault(number, name)
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[+*\-\d]", line):
            counts[function] += 0 if is_call else int(line.split()[-1])
            is_call = False
    return counts


def compiler_version() -> str:
    compiler = shutil.which("g++")
    return subprocess.check_output([compiler, "-dumpfullversion"], text=True).strip() if compiler else "none"


@pytest.mark.timeout(180)
def test_kernels_take_as_many_instructions_as_before(tmp_path: Path) -> None:
    valgrind, compiler = shutil.which("valgrind"), compiler_version()
    if valgrind is None:
        pytest.skip("valgrind is not installed (Debian: apt-get install valgrind)")
    if compiler != COMPILER:
        pytest.skip(f"counts are known for g++ {COMPILER}, this is {compiler}")
    out = tmp_path / "callgrind"
    subprocess.run(
        [
            valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-line=no",
            *(f"--toggle-collect=*{name}*" for name in ("::mul_q8", "::direct_task")), sys.executable, "-c", WORK,
        ],
        check=True, capture_output=True, cwd=ROOT, env=os.environ | {"CEXT_ISA": "avx2", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    counts = self_counts(out)
    got = {what: sum(n for name, n in counts.items() if part in name) for what, part in KERNELS.items()}
    assert got == {what: pytest.approx(n, rel=0.03) for what, n in COUNTS.items()}
