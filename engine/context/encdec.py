"""The kinds of context with an encoder: alone, beside a decoder, and the decoder itself.

What the two share is the decoder's memory (`engine.memory.encdec`): an encode puts a sequence's source into it, computed
once, and the decoder looks at it with every token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.context.core import Context, DecodeStatus
from engine.context.kind import ContextKind
from engine.context.memories import make_decoder_memory, make_encoder_memory
from engine.context.params import MAX_UBATCH, ContextParams
from engine.errors import ParamError, UnsupportedCallError
from engine.graph.interface import GraphType
from engine.memory import EncDecMemory, EncoderMemory, Memory
from engine.perf import PerfData

if TYPE_CHECKING:
    from cext.threadpool import ThreadPool
    from engine.adapters import LoraAdapter
    from engine.batch import Batch
    from engine.context.adapting import ActiveAdapters
    from engine.context.tracing import EvalCallback
    from engine.model import Model

ENC = ContextKind("ContextEnc", GraphType.ENCODER, make_encoder_memory, keeps_memory=False, encodes=True)
DEC = ContextKind("ContextDec", GraphType.DECODER, make_decoder_memory, keeps_memory=True)


class ContextEnc(Context):
    """An encoder's context: every encode stands alone and gives a hidden row for each token, pooled as asked for.

    Args:
        target: the memory of a decoder whose sequences get what is encoded for them as their source; or None.
    """

    def __init__(self, model: Model, params: ContextParams, target: EncDecMemory | None = None) -> None:
        kind = ENC if target is None else replace(ENC, stores_source=True)
        super().__init__(model, replace(params.scratch(), embeddings=True), kind)
        self.set_target(target)

    def encode(self, batch: Batch) -> DecodeStatus:
        """Compute hidden rows and, beside a decoder, make a source of each sequence's tokens; see `Context.encode`.

        Raises: UnsupportedCallError: beside a decoder whose memory is detached.
        """
        memory = self._memory
        if self.kind.stores_source and isinstance(memory, EncoderMemory) and memory.target is None:
            raise UnsupportedCallError("encode", "an encoder whose decoder has no memory")
        return super().encode(batch)

    def set_target(self, target: EncDecMemory | None) -> None:
        """Give what is encoded from now on to another memory of the same model and layout."""
        if isinstance(self._memory, EncoderMemory):
            self._memory.target = target


class ContextDec(Context):
    """The context of an encoder-decoder's decoder: it goes on from sources that an encoder or a saved state gave it."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        if not model.arch.has_encoder:
            raise ParamError(f"{model.arch.name} has no encoder beside its decoder: ContextDec is not for it")
        super().__init__(model, params, DEC)


class ContextEncDec(ContextDec):
    """An encoder-decoder's context: a decoder with an encoder of its own.

    `encode` gives sequences their source, and begins them anew; `decode` goes on from there. Everything else is the
    decoder's: memory, state, logits. Adapters, threads, callbacks and counters are those of both.
    """

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params)
        # An encoder sees a source whole, so that its micro batch is as large as a batch; its cells are nobody's memory.
        n_ubatch = min(max(params.n_ubatch, params.n_batch), MAX_UBATCH)
        enc_params = replace(params, n_ubatch=n_ubatch, kv_bytes_max=None)
        self._enc = ContextEnc(model, enc_params, self._target())
        self._enc.abort_flag = self.abort_flag

    def _target(self) -> EncDecMemory | None:
        assert self._memory is None or isinstance(self._memory, EncDecMemory)
        return self._memory

    def get_ctx_enc(self) -> ContextEnc:
        """The encoder: its hidden rows are those of the last encode."""
        return self._enc

    def get_ctx_dec(self) -> ContextDec:
        """The decoder: this context."""
        return self

    def encode(self, batch: Batch) -> DecodeStatus:
        """Make a source of each sequence's tokens; what the sequences held goes.

        Returns:
            OK, or ABORTED where the abort flag or callback asked for it: the memory is then what it was before.

        Raises:
            BatchError, ContextFullError, KernelStatusError: the memory is what it was before.
            UnsupportedCallError: the memory is detached.
        """
        return self._enc.encode(batch)

    def memory_bytes(self) -> int:
        """Bytes that the memory takes once a sequence and its source fill the context, the encoder's own included."""
        return super().memory_bytes() + self._enc.memory_bytes()

    def compute_bytes(self) -> int:
        """Bytes that computing takes beside that, in both."""
        return super().compute_bytes() + self._enc.compute_bytes()

    def set_kv_self(self, kv: Memory | None) -> Memory | None:
        """Attach another memory to both; returns the old one, detached. Raises: ParamError."""
        old = super().set_kv_self(kv)
        self._enc.set_target(self._target())
        return old

    def set_n_threads(self, n_threads: int, n_threads_batch: int) -> None:
        """Compute with that many threads for one token and for many. Raises: ParamError."""
        super().set_n_threads(n_threads, n_threads_batch)
        self._enc.set_n_threads(n_threads, n_threads_batch)

    def attach_threadpool(self, pool: ThreadPool, pool_batch: ThreadPool | None = None) -> None:
        """Compute with pools that contexts share."""
        super().attach_threadpool(pool, pool_batch)
        self._enc.attach_threadpool(pool, pool_batch)

    def detach_threadpool(self) -> None:
        """Compute with pools of their own again."""
        super().detach_threadpool()
        self._enc.detach_threadpool()

    def set_abort_callback(self, callback: Callable[[], bool] | None) -> None:
        """Ask callback at most once a millisecond while computing; True aborts."""
        super().set_abort_callback(callback)
        self._enc.set_abort_callback(callback)

    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """Show callback what both compute; the names of weights tell them apart."""
        super().set_eval_callback(callback)
        self._enc.set_eval_callback(callback)

    def perf_get_data(self) -> PerfData:
        """The counters of both; what is encoded counts as prompt."""
        dec, enc = super().perf_get_data(), self._enc.perf_get_data()
        return replace(
            dec,
            n_p_eval=dec.n_p_eval + enc.n_p_eval + enc.n_eval,
            t_p_eval_ms=dec.t_p_eval_ms + enc.t_p_eval_ms + enc.t_eval_ms,
        )

    def perf_reset(self) -> None:
        """Set the counters of both to zero."""
        super().perf_reset()
        self._enc.perf_reset()

    def rm_adapter_lora(self, adapter: LoraAdapter) -> bool:
        """Stop using an adapter; False where it was not in use."""
        was_used = super().rm_adapter_lora(adapter)
        self._enc._take_adapters(self._adapters)
        return was_used

    def clear_adapter_lora(self) -> None:
        """Stop using all adapters."""
        super().clear_adapter_lora()
        self._enc._take_adapters(self._adapters)

    def _without_place(self, adapters: ActiveAdapters) -> list[str]:
        """What one of the graphs should use and would not."""
        return [*super()._without_place(adapters), *self._enc._without_place(adapters)]

    def _take_adapters(self, adapters: ActiveAdapters) -> None:
        super()._take_adapters(adapters)
        self._enc._take_adapters(adapters)

    def close(self) -> None:
        """Let go of memory and threads."""
        self._enc.close()
        super().close()
