"""llama: Llama 1 to 3, SmolLM2, Mistral and everything converted to their form.

Source: arXiv:2302.13971, arXiv:2407.21783; GGUF architecture "llama".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.decoder import DenseDecoder
from engine.hparams import read_hparams

if TYPE_CHECKING:
    from engine.gguf import GGUFFile

TYPE_NAMES = {16: "1B", 22: "1B", 26: "3B", 28: "3B", 30: "256M", 32: "8B", 40: "13B", 48: "34B", 60: "30B", 80: "70B"}


class Llama(DenseDecoder):
    """The dense decoder as it is; key and query weights are stored for paired rotation (NORM)."""

    name = "llama"

    def __init__(self, gguf: GGUFFile) -> None:
        self.hparams = read_hparams(gguf, "norm")

    def tensors(self) -> Iterator[TensorSpec]:
        """The dense decoder's tensors and, in Llama 3.1 and later, the frequency factors."""
        yield from super().tensors()
        yield TensorSpec("rope_freqs.weight", (self.hparams.rope.n_rot // 2,), required=False)

    def type_name(self) -> str:
        """The size label, by the number of layers."""
        return TYPE_NAMES.get(self.hparams.n_layer, "")
