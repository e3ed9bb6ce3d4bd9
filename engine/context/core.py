"""`Context`: one decode loop over a model, a memory and the backend.

A context kind is a record (`engine.context.kinds`), not an override. What a decode does: check the batch, carry out the
memory's pending work, open a transaction, place all micro batches, compute them one by one, commit. On any failure or
abort the memory is what it was before the call.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from cext.executor import Program, work_bytes
from cext.weights import LargeBuffer
from engine.batch import Batch, UBatch
from engine.batch_split import SplitPolicy, split
from engine.context.adapting import ActiveAdapters
from engine.context.builder import Topology
from engine.context.computing import ComputeMixin
from engine.context.outputs import Outputs
from engine.context.params import ContextParams
from engine.context.plans import Plans
from engine.context.positions import check_batch, rope_positions
from engine.context.snapshot import StateMixin
from engine.context.tracing import EvalCallback, report_nodes
from engine.errors import (
    AdapterError,
    BatchError,
    ParamError,
    UnsupportedCallError,
)  # fmt: skip
from engine.graph.result import graph_text
from engine.memory.kv_self import kv_self_update
from engine.types import F32Array, F32Logits

if TYPE_CHECKING:
    from engine.adapters import ControlVector, LoraAdapter
    from engine.context.kind import ContextKind
    from engine.memory import Memory, Placement
    from engine.model import Model


_attached: weakref.WeakSet[Memory] = weakref.WeakSet()


class DecodeStatus(Enum):
    """How a decode ended when it did not raise."""

    OK = "ok"
    ABORTED = "aborted"


class Context(ComputeMixin, StateMixin):
    """A context of a model.

    Args:
        model: must stay open as long as the context is used.
        params: sizes and types.
        kind: what sort of context.

    Raises: ParamError, OutOfMemoryError.

    Thread: one at a time; `abort_flag` from any.
    """

    def __init__(self, model: Model, params: ContextParams, kind: ContextKind) -> None:
        self._model, self._params, self._kind = model, params, kind
        self._n_ctx = params.n_ctx or model.n_ctx_train
        self._n_ubatch = min(params.n_ubatch, params.n_batch, self._n_ctx)
        n_threads = params.n_threads or model.n_threads
        super().__init__(n_threads, params.n_threads_batch or n_threads, model.load_ms)
        if params.pooling == "rank" and not (kind.encodes and model.arch.n_cls_out):
            raise ParamError("pooling='rank': the model has no classification head")
        memory = kind.make_memory(model, params, self._n_ctx)
        self._memory: Memory | None = memory
        _attached.add(memory)
        self._embeddings = params.embeddings
        self._causal = not kind.encodes
        self._adapters = ActiveAdapters()
        self._topology_cache: Topology | None = None
        self._plans = Plans(model, kind.name, self._n_ctx, self._n_ubatch)
        self._eval_callback: EvalCallback | None = None
        hp = model.hparams
        self._outputs = Outputs(model.arch.n_cls_out if kind.encodes else hp.n_vocab, hp.n_embd, kind.name)

    # -- sizes -------------------------------------------------------------------------------------------------------

    def n_ctx(self) -> int:
        """Positions a sequence may have."""
        return self._n_ctx

    def n_ctx_per_seq(self) -> int:
        """Positions a sequence may have: all of n_ctx, however many sequences there are."""
        return self._n_ctx

    def n_batch(self) -> int:
        """Most tokens of one decode."""
        return self._params.n_batch

    def n_ubatch(self) -> int:
        """Most tokens computed at a time."""
        return self._n_ubatch

    def n_seq_max(self) -> int:
        """Most sequences."""
        return self._params.n_seq_max

    def pooling_type(self) -> str:
        """How a sequence's rows become one."""
        return self._params.pooling

    def get_model(self) -> Model:
        """The model."""
        return self._model

    @property
    def params(self) -> ContextParams:
        """The parameters it was made with."""
        return self._params

    @property
    def kind(self) -> ContextKind:
        """What sort of context it is."""
        return self._kind

    def memory_bytes(self) -> int:
        """Bytes that the memory takes once a sequence fills the context."""
        return 0 if self._memory is None else self._memory.need_bytes(self._n_ctx, self._n_ubatch)

    def compute_bytes(self) -> int:
        """Bytes that computing tokens takes beside that: buffers of the graph, which is compiled for it, and threads."""
        memory = self._memory
        if memory is None:
            return 0
        program, _ = self._plans.get(self._topology(embd_input=False), self._adapters, memory)
        return program.arena_bytes + work_bytes(program, max(self._n_threads, self._n_threads_batch))

    # -- memory ------------------------------------------------------------------------------------------------------

    def get_kv_self(self) -> Memory:
        """The live memory. Raises: UnsupportedCallError: a context without one, or detached."""
        if self._memory is None or not self._kind.keeps_memory:
            raise UnsupportedCallError("get_kv_self", self._kind.name)
        return self._memory

    def set_kv_self(self, kv: Memory | None) -> Memory | None:
        """Attach another memory (None: none); returns the old one, detached.

        Raises: ParamError: kv is attached elsewhere, or was made for another model or layout.
        """
        if not self._kind.keeps_memory:
            raise UnsupportedCallError("set_kv_self", self._kind.name)
        old = self._memory
        if kv is old:
            return old
        if kv is not None:
            if kv in _attached:
                raise ParamError("this memory is attached to another context; detach it there first")
            if old is not None and kv.fingerprint != old.fingerprint:
                raise ParamError("this memory was made for another model, cache type or layout")
            _attached.add(kv)
        if old is not None:
            _attached.discard(old)
        self._memory = kv
        return old

    def kv_self_update(self) -> None:
        """Carry out the memory's pending work: fold shifts into the keys, make room for n_batch tokens."""
        kv_self_update(self)

    # -- what is computed --------------------------------------------------------------------------------------------

    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """Show callback what is computed: callback(name, f32[n_rows, n]) for each node behind each micro batch.

        Nodes have the graph's names ("attn_norm-3", "l_out-3"). The input of a product goes by its weight's name
        ("blk.3.ffn_down.weight"), that of an expert's with its number ("blk.3.ffn_down_exps.weight[5]"). Rows are the
        micro batch's: sequence by sequence, each in the order of positions; the last layer has those whose output is
        asked for, an expert those that chose it. Memory for every node is held meanwhile: a small n_ubatch keeps it
        small. What callback raises, decode raises, and the batch leaves no trace.
        """
        self._eval_callback, self._topology_cache = callback, None
        self._arena = LargeBuffer(0)  # of the size that is needed from now on

    def set_embeddings(self, embeddings: bool) -> None:
        """Keep hidden rows of the outputs, or not. Raises: UnsupportedCallError: an encoder has nothing else."""
        if self._kind.encodes and not embeddings:
            raise UnsupportedCallError("set_embeddings(False)", self._kind.name)
        self._embeddings, self._topology_cache = embeddings, None

    def set_causal_attn(self, causal: bool) -> None:
        """Let tokens see only what is before them, or everything of their sequence.

        Raises: UnsupportedCallError: recurrent layers only ever go forward.
        """
        if not causal and self._model.arch.state_spec():
            raise UnsupportedCallError("set_causal_attn(False)", f"{self._kind.name}: recurrent layers go forward")
        self._causal, self._topology_cache = causal, None

    def set_adapter_lora(self, adapter: LoraAdapter, scale: float = 1.0) -> None:
        """Use a LoRA adapter, or change its scale; several add up. Cells stay as they were computed.

        Raises: AdapterError: it changes a weight that the graph uses otherwise than as a product; nothing changed.
        """
        changed = self._adapters.copy()
        changed.set_lora(adapter, scale)
        self._use_adapters(changed)

    def rm_adapter_lora(self, adapter: LoraAdapter) -> bool:
        """Stop using an adapter; False where it was not in use."""
        self._topology_cache = None
        return self._adapters.remove_lora(adapter)

    def clear_adapter_lora(self) -> None:
        """Stop using all adapters."""
        self._adapters.clear_loras()
        self._topology_cache = None

    def apply_adapter_cvec(
        self, vector: ControlVector | None, scale: float = 1.0, il_start: int = -1, il_end: int = -1
    ) -> None:
        """Add a control vector to the outputs of layers il_start to il_end, both included; None: none.

        Negative bounds: from layer 1, to the last.

        Raises: ParamError: no direction for these layers; AdapterError: the graph has no place for it; nothing changed.
        """
        last = self._model.hparams.n_layer - 1 if il_end < 0 else il_end
        changed = self._adapters.copy()
        changed.set_cvec(vector, scale, max(il_start, 1), last)
        self._use_adapters(changed)

    def _use_adapters(self, adapters: ActiveAdapters) -> None:
        """Take these adapters where every part of them has its place in the graph. Raises: AdapterError."""
        adapters.check_shapes(self._model.weight_infos, self._model.hparams.n_embd)
        unused = self._without_place(adapters)
        if unused:
            raise AdapterError(
                f"the graph of '{self._model.arch.name}' has no place for an adapter of {', '.join(unused)}"
            )
        self._take_adapters(adapters)

    def _without_place(self, adapters: ActiveAdapters) -> list[str]:
        """What of the adapters the graph would not use."""
        topology = replace(self._topology(embd_input=False), lora=adapters.lora_pairs, cvec=adapters.cvec)
        builder = self._plans.builder(topology, adapters, self._memory)
        self._model.arch.build(builder)
        return builder.unused_adapters()

    def _take_adapters(self, adapters: ActiveAdapters) -> None:
        self._adapters, self._topology_cache = adapters, None

    def adapters_signature(self) -> str:
        """A text that differs where active adapters make other numbers."""
        return self._adapters.signature()

    def _wants_logits(self) -> bool:
        return not self._kind.encodes or self._params.pooling == "rank"

    def _topology(self, embd_input: bool) -> Topology:
        cached = self._topology_cache
        if cached is not None and cached.embd_input == embd_input:
            return cached
        self._topology_cache = Topology(
            graph_type=self._kind.graph_type,
            embd_input=embd_input,
            want_embd=self._embeddings,
            want_logits=self._wants_logits(),
            lora=self._adapters.lora_pairs,
            cvec=self._adapters.cvec,
            causal=self._causal,
            stores_source=self._kind.stores_source,
            trace=self._eval_callback is not None,
        )
        return self._topology_cache

    def graph_text(self) -> str:
        """The graph of the next decode of tokens, as canonical text."""
        builder = self._plans.builder(self._topology(embd_input=False), self._adapters, self._memory)
        return graph_text(self._model.arch.build(builder))

    # -- decode ------------------------------------------------------------------------------------------------------

    def decode(self, batch: Batch) -> DecodeStatus:
        """Compute a batch and keep its cells.

        Returns:
            OK, or ABORTED where the abort flag or callback asked for it: the memory is then what it was before.

        Raises:
            BatchError: something inconsistent in the batch.
            ContextFullError: no room for it.
            KernelStatusError: logits that are not finite.
            In each case the memory is what it was before.
        """
        if self._kind.encodes:
            raise UnsupportedCallError("decode", f"{self._kind.name}: encode instead")
        return self._compute(batch, "decode")

    def encode(self, batch: Batch) -> DecodeStatus:
        """Compute the hidden rows of a batch whose tokens see each other in both directions; nothing is kept.

        Returns and raises: as `decode`; UnsupportedCallError: on a decoder's context.
        """
        if not self._kind.encodes:
            raise UnsupportedCallError("encode", f"{self._kind.name}: decode instead")
        return self._compute(replace(batch, logits=np.ones(batch.n_tokens, dtype=np.bool_)), "encode")

    def _compute(self, batch: Batch, call: str) -> DecodeStatus:
        memory = self._memory
        if memory is None:
            raise UnsupportedCallError(call, f"{self._kind.name} without a memory")
        if batch.n_tokens > self._params.n_batch:
            raise BatchError(f"{batch.n_tokens} tokens in a batch, n_batch is {self._params.n_batch}")
        policy = memory.split_policy if self._causal else self._check_see_each_other(batch)
        if not self._kind.keeps_memory:
            memory.clear()
        pos = check_batch(batch, memory, self._n_ctx, self._params.n_seq_max, self._model.hparams)
        self._outputs.start(batch, want_logits=self._wants_logits(), want_embd=self._embeddings)
        began = time.perf_counter()
        topology = self._topology(batch.tokens is None)
        plan, places = self._plans.get(topology, self._adapters, memory)
        self._reserve(plan)
        memory.prepare(batch.n_tokens)
        tx = memory.begin()
        try:
            placed = [(ubatch, tx.place(ubatch)) for ubatch in split(batch, pos, self._n_ubatch, policy)]
            row = 0
            for ubatch, where in placed:
                if not self._run(plan, ubatch, where, row):
                    tx.rollback()
                    return DecodeStatus.ABORTED
                if self._eval_callback is not None:
                    report_nodes(places, self._arena, ubatch, self._eval_callback)
                row += len(ubatch.out_ids)
        except BaseException:
            tx.rollback()
            raise
        finally:
            self._binding.release()
        tx.commit()
        self._outputs.finish(batch, [ubatch.out_tokens for ubatch, _ in placed])
        self._perf.add_decode(batch.n_tokens, 1000 * (time.perf_counter() - began))
        return DecodeStatus.OK

    def _check_see_each_other(self, batch: Batch) -> SplitPolicy:
        """How to cut a batch whose tokens see what is behind them: a sequence must be whole in its micro batch."""
        if batch.n_tokens <= self._n_ubatch:
            return SplitPolicy.SIMPLE
        ids, n = Counter(batch.seq_ids).most_common(1)[0]
        if n > self._n_ubatch:
            raise BatchError(f"{n} tokens of sequence {ids[0]} see each other, n_ubatch is {self._n_ubatch}")
        return SplitPolicy.SEQUENCE

    def _run(self, plan: Program, ubatch: UBatch, where: Placement, row: int) -> bool:
        hp = self._model.hparams
        binding, n_out = self._binding, len(ubatch.out_ids)
        binding.bind(
            ubatch.n_tokens, n_out, ubatch.tokens, ubatch.embd, hp.n_embd, where.kv[0].pos if where.kv else ubatch.pos,
            rope_positions(ubatch, where.rope_pos, hp), ubatch.out_ids,
            self._outputs.logits, self._outputs.n_logits, row, self._outputs.embd, hp.n_embd,
        )  # fmt: skip
        for i, place in enumerate(where.kv):
            binding.bind_cache(i, place.pages, place.cells, place.runs, place.segments, len(place.segments))
        if where.states is not None:
            binding.bind_states(where.states.rows())
        return self._run_bound(plan, ubatch.n_tokens, "decode")

    # -- results -----------------------------------------------------------------------------------------------------

    def get_logits(self) -> F32Logits:
        """Logits of all outputs, in the batch's order: f32[n_outputs, n_vocab], valid until the next decode.

        Raises: UnsupportedCallError: an encoder has none.
        """
        if self._kind.encodes:
            raise UnsupportedCallError("get_logits", f"{self._kind.name}: it has hidden rows")
        return self._outputs.get_logits()

    def get_logits_ith(self, i: int) -> F32Array:
        """Logits of the i-th token of the batch, or counted from the last output for negative i: f32[n_vocab].

        Raises: BatchError: that token's logits were not asked for.
        """
        row: F32Array = self.get_logits()[self._outputs.row(i)]
        return row

    def get_embeddings(self) -> F32Array:
        """Hidden rows of all outputs: f32[n_outputs, n_embd]. Raises: UnsupportedCallError: not asked for."""
        return self._outputs.get_embeddings()

    def get_embeddings_ith(self, i: int) -> F32Array:
        """The hidden row of the i-th token, or from the last output for negative i: f32[n_embd]."""
        row: F32Array = self.get_embeddings()[self._outputs.row(i)]
        return row

    def get_embeddings_seq(self, seq_id: int) -> F32Array:
        """The rows of a sequence's outputs in the last batch as one: f32[n_embd], not normalised.

        With pooling "rank": the scores of the model's classification head, f32[n_cls_out].

        Raises: UnsupportedCallError: on a context without pooling; BatchError: the sequence was not in the batch.
        """
        return self._outputs.pooled(seq_id, self._params.pooling)

    # -- counters ----------------------------------------------------------------------------------------------------

    def stage_ns(self) -> dict[str, tuple[int, int, int]]:
        """For profiles: nanoseconds in row work, products and attention, of each compiled plan."""
        return self._plans.stage_ns()

    def close(self) -> None:
        """Let go of memory and threads."""
        self._release()
        self._plans.clear()
        if self._memory is not None:
            _attached.discard(self._memory)
            self._memory.close()
        self._memory = None
        self._outputs.logits = self._outputs.embd = None
