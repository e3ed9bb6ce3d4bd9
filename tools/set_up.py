"""Set up everything that `make run` and `make test` need, and do nothing that is done already.

    python tools/set_up.py run     virtual environment, packages, system libraries, compiled core
    python tools/set_up.py test    the same with what the tests and checks need

Runs before anything is installed: standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from system_needs import SystemNeeds

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
INSTALLED = VENV / "causerie-installed.json"
"""Digest of the requirements that are installed, by the mode they were installed for."""


USER_EXTRAS = ("server", "hub", "keys")
"""What a person who starts from a checkout gets too: small, and the window offers what it is for."""


def main(mode: str) -> int:
    """Set up for a mode; 0 where all that is vital is there."""
    needs = SystemNeeds(for_tests=mode == "test")
    if not needs.meet():
        return 1
    if not make_venv() or not install(mode):
        return 1
    return run([str(PYTHON), "setup.py", "--quiet", "build_ext", "--inplace"], "building the compiled core")


def make_venv() -> bool:
    """A virtual environment with a Python that starts and is new enough; another one is made again."""
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    if PYTHON.exists() and subprocess.run([PYTHON, "-c", check], stderr=subprocess.DEVNULL).returncode == 0:
        return True
    # Not sys.executable, which may be the very environment that is to be made again.
    base = str(getattr(sys, "_base_executable", sys.executable))
    return run([base, "-m", "venv", "--clear", str(VENV)], "making the virtual environment .venv") == 0


def install(mode: str) -> bool:
    """The packages of pyproject.toml, unless the same are in already."""
    requirements = requirements_of(mode)
    digest = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()
    installed: dict[str, str] = json.loads(INSTALLED.read_text()) if INSTALLED.exists() else {}
    if installed.get(mode) == digest:
        return True
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    if run(pip, "installing Python packages from PyPI") != 0:
        print(
            "  A connection to PyPI is needed the first time; behind a proxy or mirror, tell pip as usual.",
            file=sys.stderr,
        )
        return False
    INSTALLED.write_text(json.dumps(installed | {mode: digest}))
    return True


def requirements_of(mode: str) -> list[str]:
    """What is needed to build and run with all that the window offers, and for "test" the development extra too."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    extras = project["project"]["optional-dependencies"]
    chosen = [*USER_EXTRAS, "dev"] if mode == "test" else USER_EXTRAS
    needed = [requirement for name in chosen for requirement in extras[name]]
    return [*project["build-system"]["requires"], *project["project"]["dependencies"], *needed]


def run(command: list[str], doing: str) -> int:
    """Run a command from the project's folder; say what is being done, and that it failed."""
    print(f"{doing} ...", file=sys.stderr, flush=True)
    status = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONWARNINGS": "ignore"}).returncode
    if status:
        print(f"{doing}: failed with status {status}", file=sys.stderr)
    return status


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["test"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
