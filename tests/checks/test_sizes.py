"""No file grows without anyone noticing."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "engine", "cext", "tests", "tools", "resources")
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".cpp", ".h", ".cl", ".qss")
MAX_LINES = 500
LARGER: dict[str, int] = {}
"""Files that are one thing and yet longer, with the length that each may have."""


def test_files_have_at_most_500_lines() -> None:
    too_long = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                n_lines = path.read_text().count("\n")
                name = path.relative_to(ROOT).as_posix()
                if n_lines > LARGER.get(name, MAX_LINES):
                    too_long.append(f"{name}: {n_lines} lines")
    assert not too_long, "is each still one thing? " + ", ".join(too_long)


def test_the_list_holds_nothing_that_is_short() -> None:
    for name, limit in LARGER.items():
        assert MAX_LINES < (ROOT / name).read_text().count("\n") <= limit
