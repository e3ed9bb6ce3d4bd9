"""The list of architectures: adding one is its file and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from engine.errors import UnsupportedArchitectureError

if TYPE_CHECKING:
    from engine.arch.base import Arch
    from engine.gguf import GGUFFile

ARCHITECTURES = {
    "apertus": "engine.arch.apertus:Apertus",
    "arcee": "engine.arch.plain:Arcee",
    "bert": "engine.arch.bert:Bert",
    "bloom": "engine.arch.parallel:Bloom",
    "cohere2": "engine.arch.parallel:Cohere2",
    "command-r": "engine.arch.parallel:CommandR",
    "deepseek2": "engine.arch.mla:DeepSeek2",
    "dots1": "engine.arch.experts:Dots1",
    "ernie4_5": "engine.arch.plain:Ernie45",
    "ernie4_5-moe": "engine.arch.experts:Ernie45MoE",
    "exaone4": "engine.arch.plain:Exaone4",
    "falcon": "engine.arch.parallel:Falcon",
    "falcon-h1": "engine.arch.mamba2_hybrids:FalconH1",
    "gemma": "engine.arch.gemma:Gemma",
    "gemma-embedding": "engine.arch.gemma3:GemmaEmbedding",
    "gemma2": "engine.arch.gemma:Gemma2",
    "gemma3": "engine.arch.gemma3:Gemma3",
    "gemma4": "engine.arch.gemma4:Gemma4",
    "glm4": "engine.arch.glm4:Glm4",
    "glm4moe": "engine.arch.glm4:Glm4MoE",
    "gpt-oss": "engine.arch.gpt_oss:GptOss",
    "gpt2": "engine.arch.parallel:Gpt2",
    "gptneox": "engine.arch.parallel:GptNeoX",
    "granite": "engine.arch.granite:Granite",
    "granitehybrid": "engine.arch.mamba2_hybrids:GraniteHybrid",
    "granitemoe": "engine.arch.granite:GraniteMoE",
    "hunyuan-dense": "engine.arch.plain:HunyuanDense",
    "jamba": "engine.arch.jamba:Jamba",
    "lfm2": "engine.arch.lfm2:Lfm2",
    "lfm2moe": "engine.arch.lfm2:Lfm2MoE",
    "llama": "engine.arch.llama:Llama",
    "mamba": "engine.arch.mamba:Mamba",
    "mamba2": "engine.arch.mamba:Mamba2",
    "minicpm3": "engine.arch.mla:MiniCPM3",
    "minimax-m2": "engine.arch.experts:MiniMaxM2",
    "mistral3": "engine.arch.mistral3:Mistral3",
    "mpt": "engine.arch.parallel:Mpt",
    "nemotron": "engine.arch.plain:Nemotron",
    "nomic-bert": "engine.arch.bert:NomicBert",
    "olmo": "engine.arch.olmo:Olmo",
    "olmo2": "engine.arch.olmo:Olmo2",
    "olmoe": "engine.arch.olmo:OlmoE",
    "phi2": "engine.arch.parallel:Phi2",
    "phi3": "engine.arch.phi3:Phi3",
    "qwen2": "engine.arch.qwen2:Qwen2",
    "qwen2moe": "engine.arch.qwen3:Qwen2MoE",
    "qwen2vl": "engine.arch.qwen2vl:Qwen2VL",
    "qwen3": "engine.arch.qwen3:Qwen3",
    "qwen35": "engine.arch.qwen3next:Qwen35",
    "qwen35moe": "engine.arch.qwen3next:Qwen35MoE",
    "qwen3moe": "engine.arch.qwen3:Qwen3MoE",
    "qwen3next": "engine.arch.qwen3next:Qwen3Next",
    "rwkv6": "engine.arch.rwkv:Rwkv6",
    "rwkv7": "engine.arch.rwkv:Rwkv7",
    "seed_oss": "engine.arch.plain:SeedOss",
    "smollm3": "engine.arch.plain:SmolLM3",
    "stablelm": "engine.arch.parallel:StableLM",
    "starcoder": "engine.arch.parallel:StarCoder",
    "starcoder2": "engine.arch.plain:StarCoder2",
    "t5": "engine.arch.t5:T5",
    "t5encoder": "engine.arch.t5:T5Encoder",
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
