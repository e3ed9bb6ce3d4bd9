"""Signals are connected to bound methods only.

A lambda, a partial or a nested function that is connected to a worker's signal runs in the worker's thread, even over a
queued connection, since only the owner of a bound method tells Qt which thread it belongs to.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "app").rglob("*.py"))


def bad_connects(source: str) -> list[str]:
    """Where `.connect(` is given something else than an attribute of an object, as "line: code"."""
    tree = ast.parse(source)
    bad = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "connect":
            slot = node.args[0] if node.args else None
            if not is_bound_method(slot) and not is_no_signal(node):
                bad.append(f"{node.lineno}: {ast.unparse(node)}")
    return bad


def is_bound_method(slot: ast.expr | None) -> bool:
    """`self.x`, `obj.method`, `self.part.method`, or a signal passed on; no call, lambda or bare name."""
    if not isinstance(slot, ast.Attribute):
        return False
    owner = slot.value
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and not owner.id[:1].isupper()


def is_no_signal(call: ast.Call) -> bool:
    """Databases and sockets have a `connect` too."""
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("sqlite3", "probe")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_connects_take_bound_methods(path: Path) -> None:
    assert not bad_connects(path.read_text())


def test_the_check_itself() -> None:
    good = (
        "a.b.connect(self.on_b)\nx.connect(self.view.update, Qt.ConnectionType.QueuedConnection)\nsqlite3.connect(path)"
    )
    assert not bad_connects(good)
    for slot in ("lambda: 1", "partial(self.f, 1)", "on_click", "", "Widget.method", "self.f()"):
        assert bad_connects(f"self.button.clicked.connect({slot})"), slot
