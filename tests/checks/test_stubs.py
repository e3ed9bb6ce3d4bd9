"""Each `.pyi` of the compiled core says what its module has: the same public names with the same parameters.

mypy.stubtest would ask more, but stumbles over extension types, which have `__cinit__` where it looks for `__init__`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUBS = sorted((ROOT / "cext").glob("*.pyi"))


def definitions(body: Iterable[ast.stmt]) -> dict[str, list[str] | None]:
    """Public functions and classes of a stub, functions with their parameters; methods as "Class.method"."""
    found: dict[str, list[str] | None] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        elif isinstance(node, ast.ClassDef):
            found[node.name] = None
            found |= {f"{node.name}.{name}": parameters for name, parameters in definitions(node.body).items()}
    return {name: parameters for name, parameters in found.items() if "_" not in (name[0], name.split(".")[-1][0])}


def runtime_names(module: ModuleType) -> set[str]:
    """Public functions and classes that are the module's own."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_stub_agrees_with_module(path: Path) -> None:
    module = importlib.import_module(f"cext.{path.stem}")
    defined = definitions(ast.parse(path.read_text()).body)
    assert runtime_names(module) <= set(defined), "not in the stub"
    for name, parameters in defined.items():
        value: object = module
        for part in name.split("."):
            assert hasattr(value, part), f"{name} is in the stub only"
            value = getattr(value, part)
        if parameters is not None and not isinstance(value, property) and callable(value):
            assert list(inspect.signature(value).parameters) == parameters, name
