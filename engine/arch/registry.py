"""The list of architectures: adding one is its file and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from engine.errors import UnsupportedArchitectureError

if TYPE_CHECKING:
    from engine.arch.base import Arch
    from engine.gguf import GGUFFile

ARCHITECTURES = {
    "gemma": "engine.arch.gemma:Gemma",
    "gemma2": "engine.arch.gemma:Gemma2",
    "gemma3": "engine.arch.gemma3:Gemma3",
    "llama": "engine.arch.llama:Llama",
    "qwen2": "engine.arch.qwen2:Qwen2",
}


def create_arch(gguf: GGUFFile) -> Arch:
    """The architecture of a file.

    Raises: UnsupportedArchitectureError; HparamError: for parameters that are missing or out of range.
    """
    place = ARCHITECTURES.get(gguf.architecture)
    if place is None:
        raise UnsupportedArchitectureError(gguf.architecture, tuple(sorted(ARCHITECTURES)))
    module, _, name = place.partition(":")
    cls: type[Arch] = getattr(import_module(module), name)
    return cls(gguf)
