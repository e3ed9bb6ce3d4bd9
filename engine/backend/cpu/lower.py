"""Lower a graph to a program of the compiled core.

A graph becomes a list of stages with a barrier behind each: row work, products of one activation with several weights,
attention. The passes happen on the way: neighbouring row operations share a stage and stay in the cache row by row;
products of the same activation become one stage (q, k and v; gate and up with their activation); activations are
quantised where their producer ends; buffers are placed by liveness.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cext.executor import Program
from cext.weights import PackedWeight, wants_q8
from engine.backend.cpu.lower_recurrent import KINDS as RECURRENT_KINDS
from engine.backend.cpu.lower_recurrent import RecurrentLowering, StateOffsets
from engine.backend.cpu.stages import (
    COPY,
    GATHER,
    GET_MAPPED,
    GET_PACKED,
    LAYER_NORM,
    MUL_SCALAR,
    N_ROPE_AXES,
    RMS_NORM,
    ROPE,
    ROPE_KINDS,
    ROPE_TABLE,
    ROW_OPS,
    STORE_KV,
    SWA_KINDS,
    UNARY_KINDS,
    At,
    CacheLayout,
    MappedWeight,
    NodePlace,
    Place,
    Stage,
    Weight,
)
from engine.graph.rel_pos import REL_MAX, rel_bias_table
from engine.graph.result import GraphResult
from engine.graph.tensor import AttnSpec, Op, RopeSpec, Symbol, Tensor, in_order

INPUT_SLOTS = {"tokens": 0, "embd": 1, "pos": 2, "out_ids": 3}
LOGITS_SLOT, EMBD_SLOT, ROPE_POS_SLOT = 4, 5, 6
VIEWS = (Op.COLUMNS, Op.RESHAPE, Op.MERGE_ROWS)


class Lowering(RecurrentLowering):
    """One graph on its way to a program."""

    def __init__(
        self,
        result: GraphResult,
        weight: Callable[[str], Weight],
        layout: Callable[[int, int], CacheLayout],
        n_tokens_max: int,
        n_ctx: int,
        state_offsets: StateOffsets | None = None,
        *,
        keep_nodes: bool = False,
    ) -> None:
        super().__init__(weight, n_tokens_max, state_offsets, keep_nodes=keep_nodes)
        self.result, self.layout, self.n_ctx = result, layout, n_ctx
        self.order = in_order(result.roots())
        merged = max((node.integer("n") for node in self.order if node.op is Op.MERGE_ROWS), default=1)
        self.n_outputs_max = n_tokens_max // merged
        self.users: dict[int, list[Tensor]] = {}
        self.tables: dict[tuple[RopeSpec, str], tuple[int, At]] = {}
        self.attns: dict[int, int] = {}

    def lower(self) -> Program:
        """The finished program. Raises: UnsupportedQuantError: a weight without a kernel; ValueError."""
        for node in self.order:
            for source in node.src:
                self.users.setdefault(id(source), []).append(node)
        self._place_logits()
        for node in self.order:
            if id(node) not in self.at:
                self._emit(node)
        if self.result.embd is not None:
            self._copy_embd(self.result.embd)
        arena_bytes = self._place_buffers()
        for stage in self.stages:
            for call in stage.calls:
                call(self.program)
        self.program.finish(self.n_tokens_max, self.n_ctx, arena_bytes)
        return self.program

    def node_places(self) -> tuple[NodePlace, ...]:
        """Where everything that a trace reports lies after a run: named nodes, and the inputs of products by weight."""
        traced = [(node.name, node) for node in self.result.nodes]
        traced += [(node.src[0].name, node.src[1]) for node in self.order if node.op is Op.MUL_MAT]
        places = [
            NodePlace(name, at.buffer.offset + 4 * at.column, at.ld, node.n_row, self._symbol(node))
            for name, node in traced
            if (at := self.at.get(id(node))) is not None and at.buffer is not None
        ]
        for name, at, n, n_expert, first_pairs in self.expert_inputs:
            assert at.buffer is not None and first_pairs.buffer is not None
            places.append(
                NodePlace(name, at.buffer.offset, at.ld, n, Symbol.N_TOKENS, n_expert, first_pairs.buffer.offset)
            )
        return tuple(places)

    def _place_logits(self) -> None:
        """The logits, and what only reaches them through operations in place, lie in the caller's array at once."""
        node = self.result.logits
        if node is None:
            return
        at = At(None, LOGITS_SLOT, 0, node.n_row)
        self._in_slot = {id(node)}
        while node.op in (Op.SOFTCAP, Op.SCALE, Op.UNARY) and len(self.users[id(node.src[0])]) == 1:
            node = node.src[0]
            self._in_slot.add(id(node))
        self._logits_at = at

    def _out(self, node: Tensor) -> At:
        """Where a node's result goes; called while its stage is open."""
        if self.result.logits is not None and id(node) in self._in_slot:
            self.at[id(node)] = self._logits_at
            return self._logits_at
        at = self._new_rows(node)
        self._start(at)
        return at

    def _is_last_use(self, x: Tensor) -> bool:
        """Whether x's rows may be overwritten by the one node that reads them."""
        while len(self.users[id(x)]) == 1 and x.op is Op.RESHAPE:
            x = x.src[0]
        own = x.op not in (*VIEWS, Op.INPUT, Op.STORE_KV)
        return (
            own and len(self.users[id(x)]) == 1 and not self.keep_nodes and not any(x is r for r in self.result.roots())
        )

    def _emit(self, node: Tensor) -> None:
        if node.op is Op.WEIGHT:
            return
        if node.op is Op.INPUT:
            self.at[id(node)] = At(None, INPUT_SLOTS[node.name], 0, node.n_row)
        elif node.op in VIEWS:
            base = self.at[id(node.src[0])]
            first = node.integer("first") if node.op is Op.COLUMNS else 0
            n = node.integer("n") if node.op is Op.MERGE_ROWS else 1
            assert n == 1 or (base.column == 0 and base.ld == node.src[0].n_row), "rows to merge have gaps"
            self.at[id(node)] = At(base.buffer, base.slot, base.column + first, n * base.ld)
        elif node.op is Op.MUL_MAT:
            self._emit_products(node)
        elif node.op in (Op.ATTN, Op.ATTN_CROSS):
            self._emit_attn(node)
        elif node.op in RECURRENT_KINDS:
            self._emit_recurrent(node)
        elif node.op is Op.MOE:
            self._emit_moe(node)
        elif node.op is Op.MUL_MAT_HEADS:
            self._emit_head_products(node)
        elif node.op in (Op.HEAD_COLUMNS, Op.CONCAT_HEADS):
            self._emit_head_copies(node)
        else:
            self._emit_row(node)

    def _emit_row(self, node: Tensor) -> None:
        src = node.src
        if node.op is Op.ROPE:
            table_at, n_rot, kind = self._rope_table(node)
        stage = self._rows_stage(node, self._symbol(node))
        if node.op is Op.STORE_KV:
            spec = node.attn()
            use_k = self._use(self.at[id(src[0])])
            use_v = None if self.layout(spec.cache, spec.il).v_in_k else self._use(self.at[id(src[1])])
            self._row_op(stage, STORE_KV, src[0].n_row, None, use_k, use_v, arg=self._attn_index(spec))
            self.at[id(node)] = self.at[id(src[0])]
            return
        if node.op is Op.GET_ROWS:
            use_ids = self._use(self.at[id(src[1])])
            self._emit_get_rows(stage, node, use_ids)
            return
        if node.op is Op.PICK and src[0].op is Op.WEIGHT:
            values, ids = self._vector(src[0]), self._use(self.at[id(src[1])])
            out = self._use(self._out(node))
            self._row_op(stage, ROW_OPS[node.op], node.n_row, out, None, ids, w=values, n_w=len(values))
            return
        x = self._use(self.at[id(src[0])])
        if node.op not in (Op.GATHER, Op.TOP_K, Op.PICK) and self._is_last_use(src[0]):
            self.at[id(node)] = self.at[id(src[0])]
            out = x
        else:
            out = self._use(self._out(node))
        if node.op is Op.GATHER:
            self._row_op(stage, GATHER, node.n_row, out, x, self._use(self.at[id(src[1])]))
        elif node.op in (Op.RMS_NORM, Op.LAYER_NORM):
            n = node.shape[-1]
            assert isinstance(n, int)
            w = self._vector(src[1]) if len(src) > 1 else None
            b = self._vector(src[2]) if len(src) > 2 else None
            kind = RMS_NORM if node.op is Op.RMS_NORM else LAYER_NORM
            self._row_op(stage, kind, n, out, x, n_sub=node.n_row // n, f=node.number("eps"), w=w, b=b, n_w=n)
        elif node.op is Op.ROPE:
            n_head, d = node.shape[1:]
            assert isinstance(n_head, int) and isinstance(d, int)
            self._row_op(stage, ROPE, d, out, x, self._use(table_at), arg=kind, n_sub=n_head, n_rot=n_rot)
        else:
            self._emit_elementwise(stage, node, x, out)

    def _emit_elementwise(self, stage: Stage, node: Tensor, x: Callable[[], Place], out: Callable[[], Place]) -> None:
        kind, n = ROW_OPS[node.op], node.n_row
        if node.op is Op.MUL and node.src[1].op is Op.WEIGHT and node.src[1].n_values == 1:
            self._row_op(stage, ROW_OPS[Op.SCALE], n, out, x, f=float(self._vector(node.src[1])[0]))
            return
        if node.op in (Op.ADD, Op.MUL) and node.src[1].op is Op.WEIGHT:
            self._row_op(stage, kind + 1, n, out, x, w=self._vector(node.src[1]), n_w=n)
            return
        y = self._use(self.at[id(node.src[1])]) if len(node.src) > 1 else None
        if node.op is Op.MUL and node.src[1].n_row == 1 and n > 1:
            self._row_op(stage, MUL_SCALAR, n, out, x, y)
            return
        if node.op is Op.MUL_HEAD_SUM:
            n_head, d = node.shape[1:]
            assert isinstance(n_head, int) and isinstance(d, int)
            self._row_op(stage, kind, d, out, x, y, n_sub=n_head)
            return
        if node.op is Op.XIELU:
            params = np.array([node.number(k) for k in ("alpha_n", "alpha_p", "beta", "eps")], dtype=np.float32)
            self._row_op(stage, kind, n, out, x, w=params, n_w=4)
            return
        if node.op is Op.TOP_K:
            n_group, n_group_used = node.integer("n_group"), node.integer("n_group_used")
            self._row_op(stage, kind, node.src[0].n_row, out, x, arg=n, n_sub=n_group, n_rot=n_group_used)
            return
        f = next((node.number(k) for k in ("factor", "cap", "least") if k in node.attrs), 0.0)
        arg = UNARY_KINDS[node.text("activation")] if "activation" in node.attrs else 0
        offset = 0
        if node.op is Op.SCALE_POS:
            arg, offset = node.integer("n_step"), node.integer("offset")
        self._row_op(stage, kind, n, out, x, y, arg=arg, n_rot=offset, f=f)

    def _emit_get_rows(self, stage: Stage, node: Tensor, ids: Callable[[], Place]) -> None:
        weight = self.weight(node.src[0].name)
        out = self._use(self._out(node))
        if isinstance(weight, PackedWeight):
            index, kind = self.program.add_table(weight), GET_PACKED
        else:
            assert isinstance(weight, MappedWeight)
            index = self.program.add_mapped(int(weight.type), weight.n_rows, weight.n_cols, weight.data)
            kind = GET_MAPPED
        self._row_op(stage, kind, node.n_row, out, ids, arg=index, f=1.0)

    def _rope_table(self, node: Tensor) -> tuple[At, int, int]:
        """The table of cosines and sines that a rope node reads, made once per kind of rope."""
        spec = node.rope()
        factors = node.src[2] if len(node.src) > 2 else None
        key = (spec, factors.name if factors is not None else "")
        if key not in self.tables:
            index = self._rope_index(spec, factors)
            stage = self._rows_stage(node, Symbol.N_TOKENS)
            at = At(self._new(4 * self.n_tokens_max * spec.n_rot), 0, 0, spec.n_rot)
            self._start(at)
            self.tables[key] = (index, at)
            pos = self._use(At(None, ROPE_POS_SLOT, 0, N_ROPE_AXES if spec.sections else 1))
            self._row_op(stage, ROPE_TABLE, spec.n_rot, self._use(at), pos, arg=index)
        return self.tables[key][1], spec.n_rot, ROPE_KINDS[spec.kind]

    def _rope_index(self, spec: RopeSpec, factors: Tensor | None) -> int:
        values = self._vector(factors) if factors is not None else None
        return self.program.add_rope(
            ROPE_KINDS[spec.kind], spec.n_rot, spec.freq_base, spec.freq_scale, spec.ext_factor, spec.attn_factor,
            spec.beta_fast, spec.beta_slow, spec.n_ctx_orig, values, spec.sections,
        )  # fmt: skip

    def _emit_products(self, node: Tensor) -> None:
        """A product, together with every other one of the same activation."""
        x = node.src[1]
        glu = self._glu_of(node)
        if glu is not None:
            self._emit_glu(glu, x)
            return
        q8 = self._is_q8(node)
        group = [
            n for n in self.users[id(x)]
            if n.op is Op.MUL_MAT and n.src[1] is x and id(n) not in self.at and self._is_q8(n) == q8
            and self._glu_of(n) is None
        ]  # fmt: skip
        place_x = self._activation(x, q8)
        self._new_stage("matmul", self._symbol(node), node.name or "mul_mat")
        self._add_matmul(group, [self._out(n) for n in group], place_x, q8, -1)

    def _glu_of(self, node: Tensor) -> Tensor | None:
        """The gated activation that this product and another one end in, where both can be one stage."""
        users = self.users.get(id(node), [])
        if len(users) != 1 or users[0].op is not Op.GLU:
            return None
        glu = users[0]
        gate, up = glu.src
        same = gate.op is Op.MUL_MAT and up.op is Op.MUL_MAT and gate is not up and gate.src[1] is up.src[1]
        alone = len(self.users[id(gate)]) == 1 and len(self.users[id(up)]) == 1
        return glu if same and alone and self._is_q8(gate) == self._is_q8(up) else None

    def _emit_glu(self, glu: Tensor, x: Tensor) -> None:
        gate, up = glu.src
        q8 = self._is_q8(gate)
        place_x = self._activation(x, q8)
        self._new_stage("matmul", self._symbol(glu), glu.name or "glu")
        at = self._out(glu)
        self.at[id(gate)] = self.at[id(up)] = at
        self._add_matmul([gate, up], [at, at], place_x, q8, UNARY_KINDS[glu.text("activation")])

    def _add_matmul(self, group: list[Tensor], outs: list[At], x_at: At, q8: bool, glu: int) -> None:
        stage = self.stages[-1]
        name = group[0].name or "mul_mat"
        x = self._use(x_at)
        items = []
        for node, at in zip(group, outs, strict=True):
            bias = self._vector(node.src[2]) if len(node.src) > 2 else None
            items.append((self._packed(node.src[0].name), bias, self._use(at)))
        outputs = self._symbol(group[0]) is Symbol.N_OUTPUTS

        def call(program: Program) -> None:
            program.matmul(outputs, name, q8, x(), [(w, bias, place()) for w, bias, place in items], glu)

        stage.calls.append(call)

    def _is_q8(self, node: Tensor) -> bool:
        return wants_q8(self._packed(node.src[0].name).type)

    def _activation(self, x: Tensor, q8: bool) -> At:
        """x as a product reads it; quantised at the end of its producer's stage where that is still open."""
        at = self.at[id(x)]
        if not q8:
            return at
        if id(x) not in self.q8:
            stage = self._rows_stage(x, self._symbol(x))
            self.q8[id(x)] = self._quantised(stage, at, x.n_row)
        return self.q8[id(x)]

    def _attn_index(self, spec: AttnSpec) -> int:
        """The layer's attention parameters in the program, made when its keys are stored."""
        if spec.il not in self.attns:
            layout = self.layout(spec.cache, spec.il)
            nodes = [n for n in self.order if n.op in (Op.STORE_KV, Op.ATTN) and n.attn().il == spec.il]
            attn = next((n for n in nodes if n.op is Op.ATTN), None)
            extras = [] if attn is None else [self._vector(weight) for weight in attn.src[2:]]
            rel_bias = None
            if attn is not None and "has_later" in attn.attrs:
                rel_bias = rel_bias_table(extras.pop(), spec.n_head, has_later=bool(attn.integer("has_later")))
            rope = -1
            if spec.rope.kind != "none":
                k = next(n.src[0] for n in nodes if n.op is Op.STORE_KV)
                rope = self._rope_index(spec.rope, k.src[2] if k.op is Op.ROPE and len(k.src) > 2 else None)
            self.attns[spec.il] = self.program.add_attn(
                spec.cache, spec.n_head, spec.n_head_kv, spec.d_k, spec.d_v, int(layout.type_k), int(layout.type_v),
                layout.k_off, layout.v_off, spec.scale, spec.softcap, SWA_KINDS[spec.swa_kind], spec.n_swa, spec.causal,
                spec.max_alibi_bias, extras[0] if extras else None, rel_bias, REL_MAX, rope, layout.v_in_k,
            )  # fmt: skip
        return self.attns[spec.il]

    def _emit_attn(self, node: Tensor) -> None:
        index = self._attn_index(node.attn())
        stage = self._new_stage("attn", self._symbol(node), node.name or "attn")
        use_q = self._use(self.at[id(node.src[0])])
        out = self._use(self._out(node))
        name = node.name or "attn"
        stage.calls.append(lambda program: program.attn(name, index, use_q(), out()))

    def _copy_embd(self, embd: Tensor) -> None:
        stage = self._rows_stage(embd, self._symbol(embd))
        out = At(None, EMBD_SLOT, 0, embd.n_row)
        self._row_op(stage, COPY, embd.n_row, self._use(out), self._use(self.at[id(embd)]))
