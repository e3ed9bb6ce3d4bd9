"""Parameters of a context."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import ParamError
from engine.types import QuantType

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
POOLINGS = ("none", "mean", "cls", "last", "rank")
MAX_SEQUENCES = 4096
MAX_UBATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class ContextParams:
    """How a context is made.

    Attributes:
        n_ctx: positions a sequence may have; 0: what the model was trained on.
        n_batch: most tokens of one decode.
        n_ubatch: most tokens computed at a time.
        n_seq_max: most sequences.
        n_threads, n_threads_batch: for one token, for many; None: the processors this process may use.
        type_k, type_v: cache types by name.
        embeddings: keep hidden rows of the outputs.
        pooling: how a sequence's rows become one.
        kv_bytes_max: bound on the memory of all sequences' cells; None: unbounded.
        swa_full: keep every cell of layers with a sliding window, so that a chat can step back anywhere.
    """

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_threads: int | None = None
    n_threads_batch: int | None = None
    type_k: str = "f16"
    type_v: str = "f16"
    embeddings: bool = False
    pooling: str = "none"
    kv_bytes_max: int | None = None
    swa_full: bool = False

    def __post_init__(self) -> None:
        for name, lo, hi in (
            ("n_ctx", 0, 1 << 30), ("n_batch", 1, 1 << 24), ("n_ubatch", 1, MAX_UBATCH), ("n_seq_max", 1, MAX_SEQUENCES)
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or not lo <= value <= hi:
                raise ParamError(f"{name}={value!r}: a whole number from {lo} to {hi} is needed")
        for name in ("n_threads", "n_threads_batch"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 512:
                raise ParamError(f"{name}={value!r}: 1 to 512")
        for name in ("type_k", "type_v"):
            if getattr(self, name) not in CACHE_TYPES:
                raise ParamError(f"{name}={getattr(self, name)!r}: one of {', '.join(CACHE_TYPES)}")
        if self.pooling not in POOLINGS:
            raise ParamError(f"pooling={self.pooling!r}: one of {', '.join(POOLINGS)}")

    def scratch(self) -> ContextParams:
        """For a context that forgets after each call: cells only carry k and v to attention, so they are f32."""
        return replace(self, type_k="f32", type_v="f32")

    @property
    def quant_k(self) -> QuantType:
        """type_k as a number."""
        return QuantType[self.type_k.upper()]

    @property
    def quant_v(self) -> QuantType:
        """type_v as a number."""
        return QuantType[self.type_v.upper()]
