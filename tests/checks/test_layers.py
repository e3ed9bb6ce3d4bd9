"""Imports that import-linter cannot see: those in Cython files, and those of the scripts that run before anything is there."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CYTHON = sorted(path for pattern in ("*.pyx", "*.pxd") for path in (ROOT / "cext").rglob(pattern))
IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w., ]+))")
CYTHON_MAY = {"numpy", "libc", "libcpp", "cpython", "cython", "cext", *sys.stdlib_module_names}


def imports_of(source: str) -> set[str]:
    """Top-level packages that Cython code imports or cimports."""
    found: set[str] = set()
    for line in source.splitlines():
        match = IMPORT.match(line)
        if match:
            modules = [match[1]] if match[1] else match[2].split(",")
            found.update(
                "cext" if m.strip().startswith(".") else m.split(" as ")[0].strip().split(".")[0] for m in modules
            )
    return found - {""}


@pytest.mark.parametrize("path", CYTHON, ids=lambda path: path.name)
def test_cython_imports_nothing_from_above(path: Path) -> None:
    assert imports_of(path.read_text()) <= CYTHON_MAY


def test_every_cython_module_has_its_types() -> None:
    missing = [path.name for path in CYTHON if path.suffix == ".pyx" and not path.with_suffix(".pyi").exists()]
    assert not missing


def test_the_check_itself() -> None:
    source = "from libc.stdint cimport int64_t\nimport numpy as np, engine.types\n  cimport cython\nfrom PySide6 import QtCore"
    assert imports_of(source) == {"libc", "numpy", "engine", "cython", "PySide6"}


@pytest.mark.parametrize("path", sorted((ROOT / "tools").glob("*.py")), ids=lambda path: path.name)
def test_set_up_needs_the_standard_library_only(path: Path) -> None:
    own = {script.stem for script in path.parent.glob("*.py")}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] in {*sys.stdlib_module_names, *own}, name
