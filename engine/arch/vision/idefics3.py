"""idefics3: the tower of SmolVLM: SigLIP with learned positions, a pixel shuffle and one matrix.

Source: arXiv:2303.15343 (SigLIP), arXiv:2408.12637, arXiv:2504.05299; projector type "idefics3" of mmproj files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.vision.base import VisionArch, read_vision_hparams
from engine.errors import HparamError
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class Idefics3(VisionArch):
    """Square images of one size; the pixel shuffle puts the patches of a block behind each other."""

    name = "idefics3"

    def __init__(self, gguf: GGUFFile) -> None:
        n_merge = gguf.get_int("clip.vision.projector.scale_factor", lo=1, hi=64)
        self.hparams = hp = read_vision_hparams(gguf, n_merge)
        if hp.image_size % hp.block_size:
            reason = f"{hp.image_size} is no multiple of {hp.n_merge} patches of {hp.patch_size}"
            raise HparamError("clip.vision.image_size", reason, gguf.path)
        self.activation = "gelu" if gguf.get_bool("clip.use_gelu", False) else "gelu_quick"

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """The one size that there is."""
        return self.hparams.image_size, self.hparams.image_size

    def projector_tensors(self) -> Iterator[TensorSpec]:
        """The positions and the projection."""
        hp = self.hparams
        yield TensorSpec("v.position_embd.weight", ((hp.image_size // hp.patch_size) ** 2, hp.n_embd))
        yield TensorSpec("mm.model.fc.weight", (hp.n_out, hp.n_merge**2 * hp.n_embd))

    def build_patches(self, g: GraphI) -> Tensor:
        """The patch embedding plus the vector of each patch's place."""
        place = ops.get_rows(g.weight("v.position_embd.weight"), g.build_inp("pos"))
        return ops.add(super().build_patches(g), place)

    def build_projector(self, g: GraphI, cur: Tensor) -> Tensor:
        """One matrix."""
        return g.build_lora_mm(g.weight("mm.model.fc.weight"), cur)
