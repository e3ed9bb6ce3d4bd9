"""The list of vision towers: adding one is its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.vision.base import VisionArch
from engine.arch.vision.idefics3 import Idefics3
from engine.arch.vision.qwen2vl import Qwen2VL, Qwen25VL
from engine.errors import HparamError, UnsupportedArchitectureError

if TYPE_CHECKING:
    from engine.gguf import GGUFFile

TOWERS: dict[str, type[VisionArch]] = {arch.name: arch for arch in (Idefics3, Qwen2VL, Qwen25VL)}


def is_vision(gguf: GGUFFile) -> bool:
    """Whether a file is an mmproj file, of whatever projectors."""
    return gguf.architecture == "clip"


def create_vision_arch(gguf: GGUFFile) -> VisionArch:
    """The tower of an mmproj file.

    Raises:
        HparamError: no vision tower, or parameters that are missing or out of range.
        UnsupportedArchitectureError: a projector type that is not known.
    """
    if not is_vision(gguf) or not gguf.get_bool("clip.has_vision_encoder", False):
        raise HparamError("general.architecture", "this file has no vision tower", gguf.path)
    name = gguf.get_str("clip.projector_type", "") or gguf.get_str("clip.vision.projector_type")
    if name not in TOWERS:
        raise UnsupportedArchitectureError(f"clip/{name}", tuple(sorted(TOWERS)))
    return TOWERS[name](gguf)
