"""qwen2: Qwen 1.5, 2, 2.5 and their coder and maths variants.

Source: arXiv:2407.10671; GGUF architecture "qwen2".
"""

from __future__ import annotations

from engine.arch.decoder import DenseDecoder


class Qwen2(DenseDecoder):
    """The dense decoder with biases on q, k and v."""

    name = "qwen2"
    has_qkv_bias = True
    type_names = {24: "0.5B", 28: "1.5B", 32: "7B", 36: "3B", 40: "13B", 48: "14B", 64: "32B", 80: "70B"}
