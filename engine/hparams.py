"""Model parameters, read from the metadata by the architecture that needs them, each checked before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import HparamError
from engine.graph.tensor import RopeSpec

if TYPE_CHECKING:
    from engine.gguf import GGUFFile

MAX_LAYERS = 4096
MAX_WIDTH = 1 << 20


@dataclass(frozen=True, slots=True)
class HParams:
    """What nearly every decoder has; an architecture keeps its own extras beside it.

    Attributes:
        n_head, n_head_kv, n_ff: per layer.
        n_embd_head_k, n_embd_head_v: dims of a key and a value head.
        rope: positions of the ordinary layers.
    """

    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_layer: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    n_embd_head_k: int
    n_embd_head_v: int
    f_norm_rms_eps: float
    f_norm_eps: float
    rope: RopeSpec


def per_layer(gguf: GGUFFile, key: str, n_layer: int, default: int | None = None) -> tuple[int, ...]:
    """An integer per layer: the key holds one for all, or an array of n_layer.

    Raises: HparamError: for a missing key without default, a wrong length or a value out of range.
    """
    if not gguf.has(key):
        if default is None:
            raise HparamError(key, "is missing", gguf.path)
        return (default,) * n_layer
    if isinstance(gguf.metadata[key], (int, float)):
        return (gguf.get_int(key, lo=0, hi=MAX_WIDTH),) * n_layer
    values = tuple(int(v) for v in gguf.get_ints(key))
    if len(values) < n_layer or not all(0 <= v <= MAX_WIDTH for v in values):
        raise HparamError(key, f"has {len(values)} values or one out of range, expected {n_layer}", gguf.path)
    return values[:n_layer]


def read_rope(gguf: GGUFFile, kind: str, n_rot: int, n_ctx_train: int) -> RopeSpec:
    """The rope of a model's ordinary layers from the `{arch}.rope.*` keys.

    Source: the keys of the GGUF specification; YaRN's corners are fixed at 32 and 1 for most architectures.
    """
    arch = gguf.architecture
    key = f"{arch}.rope.scaling.factor"
    if not gguf.has(key):
        key = f"{arch}.rope.scale_linear"
    factor = gguf.get_float(key, 1.0)
    if factor < 0 or factor > 1e6:
        raise HparamError(key, f"{factor} is out of range", gguf.path)
    scaling = gguf.get_str(f"{arch}.rope.scaling.type", "linear")
    stretched = scaling in ("linear", "yarn") and factor > 0
    freq_base = gguf.get_float(f"{arch}.rope.freq_base", 10000.0)
    if not 1.0 < freq_base <= 1e12:
        raise HparamError(f"{arch}.rope.freq_base", f"{freq_base} is out of range", gguf.path)
    return RopeSpec(
        kind=kind,
        n_rot=n_rot,
        freq_base=freq_base,
        freq_scale=1.0 / factor if stretched else 1.0,
        ext_factor=1.0 if scaling == "yarn" else 0.0,
        attn_factor=gguf.get_float(f"{arch}.rope.scaling.attn_factor", 1.0),
        n_ctx_orig=gguf.get_int(f"{arch}.rope.scaling.original_context_length", n_ctx_train, lo=0),
    )


def read_hparams(gguf: GGUFFile, rope_kind: str, *, may_lack_heads: bool = False) -> HParams:
    """The common parameters of a decoder. Layers that only predict further tokens (nextn) are not counted.

    Args:
        gguf: the file.
        rope_kind: how heads are rotated.
        may_lack_heads: layers with no key and value heads are fine: they are recurrent.

    Raises: HparamError: for a missing key or a value out of range.
    """
    arch = gguf.architecture

    def key(name: str) -> str:
        return f"{arch}.{name}"

    n_layer = gguf.get_int(key("block_count"), lo=1, hi=MAX_LAYERS)
    n_layer -= gguf.get_int(key("nextn_predict_layers"), 0, lo=0, hi=n_layer - 1)
    n_embd = gguf.get_int(key("embedding_length"), lo=1, hi=MAX_WIDTH)
    n_ctx_train = gguf.get_int(key("context_length"), lo=1)
    n_head = per_layer(gguf, key("attention.head_count"), n_layer)
    n_head_kv = n_head
    if gguf.has(key("attention.head_count_kv")):
        n_head_kv = per_layer(gguf, key("attention.head_count_kv"), n_layer)
    for heads, heads_kv in zip(n_head, n_head_kv, strict=True):
        if may_lack_heads and heads_kv == 0:
            continue
        if heads < 1 or heads_kv < 1 or heads % heads_kv or heads > 65536:
            raise HparamError(key("attention.head_count"), f"{heads} heads over {heads_kv} KV heads", gguf.path)
    n_embd_head = n_embd // (n_head[0] or 1)
    d_k = gguf.get_int(key("attention.key_length"), n_embd_head, lo=1, hi=8192)
    d_v = gguf.get_int(key("attention.value_length"), n_embd_head, lo=1, hi=8192)
    n_rot = gguf.get_int(key("rope.dimension_count"), d_k, lo=0, hi=8192)
    if n_rot > d_k or n_rot % 2:
        raise HparamError(key("rope.dimension_count"), f"{n_rot} does not fit heads of {d_k}", gguf.path)
    return HParams(
        n_vocab=read_n_vocab(gguf),
        n_ctx_train=n_ctx_train,
        n_embd=n_embd,
        n_layer=n_layer,
        n_head=n_head,
        n_head_kv=n_head_kv,
        n_ff=per_layer(gguf, key("feed_forward_length"), n_layer),
        n_embd_head_k=d_k,
        n_embd_head_v=d_v,
        f_norm_rms_eps=_read_eps(gguf, key("attention.layer_norm_rms_epsilon")),
        f_norm_eps=_read_eps(gguf, key("attention.layer_norm_epsilon")),
        rope=read_rope(gguf, rope_kind, n_rot, n_ctx_train),
    )


def _read_eps(gguf: GGUFFile, key: str) -> float:
    eps = gguf.get_float(key, 1e-5)
    if not 0.0 <= eps < 1.0:
        raise HparamError(key, f"{eps} is out of range", gguf.path)
    return eps


def read_experts(gguf: GGUFFile) -> tuple[int, int]:
    """(n_expert, n_expert_used); (0, 0) for a model without experts. Raises: HparamError."""
    arch = gguf.architecture
    n_expert = gguf.get_int(f"{arch}.expert_count", 0, lo=0, hi=65536)
    n_used = gguf.get_int(f"{arch}.expert_used_count", 0, lo=0, hi=65536)
    if n_expert and not 1 <= n_used <= n_expert:
        raise HparamError(f"{arch}.expert_used_count", f"{n_used} of {n_expert} experts", gguf.path)
    return n_expert, n_used


def read_n_vocab(gguf: GGUFFile) -> int:
    """Entries of the vocabulary: the rows of `token_embd.weight`."""
    info = gguf.tensors.get("token_embd.weight")
    if info is None or len(info.shape) != 2:
        return gguf.get_int(f"{gguf.architecture}.vocab_size", lo=1)
    return info.shape[0]
