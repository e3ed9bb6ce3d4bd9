"""Build the compiled core with the address and undefined-behaviour sanitizers, apart from the real one, and test it.

python tools/sanitize.py [pytest arguments]     without arguments: `DEFAULT_TESTS`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "sanitize"
PACKAGES = ("app", "cext", "engine", "tests")
DEFAULT_TESTS = [
    "tests/cext", "tests/engine/gguf", "tests/engine/memory", "tests/engine/test_state.py",
    "tests/engine/test_state_kinds.py", "tests/engine/test_llama_state.py", "tests/engine/test_memory_laws.py",
    "tests/engine/test_known_faults.py", "tests/engine/test_batch_split.py", "tests/engine/test_recurrent_ops.py",
    "tests/engine/tokenizer/test_damaged.py", "tests/engine/tokenizer/test_hostile.py", "tests/soak",
    "--ignore=tests/engine/memory/test_speed.py",
]  # fmt: skip
"""Of the kernels, of memories and their saved state, and all that feed damaged files; but none of speed."""


def main(arguments: list[str]) -> int:
    """Build, then run pytest with those arguments; answers its status."""
    COPY.mkdir(parents=True, exist_ok=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, COPY / name)
    for name in PACKAGES:
        # Updated in place, so that only what changed is compiled again.
        shutil.copytree(
            ROOT / name, COPY / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    environment = os.environ | {"CEXT_DEBUG": "1"}
    built = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=COPY, env=environment)
    if built.returncode:
        return built.returncode
    environment |= {
        "LD_PRELOAD": " ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")),
        # Python keeps much until it exits, and that is not this project's leak.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    # The sanitizers write to the real stderr, which pytest would otherwise keep to itself.
    pytest = [sys.executable, "-m", "pytest", "--capture=sys", "-p", "no:cacheprovider", *(arguments or DEFAULT_TESTS)]
    return subprocess.run(pytest, cwd=COPY, env=environment).returncode


def library(name: str) -> str:
    """The path of one of the compiler's own libraries."""
    compiler = os.environ.get("CXX", "g++").split()
    asked = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
