"""Lower a graph to a program of the compiled core.

A graph becomes a list of stages with a barrier behind each: row work, products of one activation with several weights,
attention. The passes happen on the way: neighbouring row operations share a stage and stay in the cache row by row;
products of the same activation become one stage (q, k and v; gate and up with their activation); activations are
quantised where their producer ends; buffers are placed by liveness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cext.executor import Program
from cext.weights import PackedWeight, activation_bytes, wants_q8
from engine.errors import UnsupportedQuantError
from engine.graph.result import GraphResult
from engine.graph.tensor import AttnSpec, Op, RopeSpec, Symbol, Tensor, in_order
from engine.types import F32Array, QuantType, U8Array

ROPE_KINDS = {"none": 0, "norm": 1, "neox": 2}
SWA_KINDS = {"none": 0, "standard": 1, "chunked": 2, "symmetric": 3}
UNARY_KINDS = {
    "silu": 0, "gelu": 1, "gelu_erf": 2, "gelu_quick": 3, "relu": 4, "relu_sqr": 5, "sigmoid": 6, "tanh": 7,
    "softplus": 8, "exp": 9, "oai": 100,
}  # fmt: skip
INPUT_SLOTS = {"tokens": 0, "embd": 1, "pos": 2, "out_ids": 3}
LOGITS_SLOT, EMBD_SLOT, ROPE_POS_SLOT = 4, 5, 6
VIEWS = (Op.COLUMNS, Op.RESHAPE)
ROW_OPS = {
    Op.ADD: 5, Op.MUL: 7, Op.SCALE: 9, Op.UNARY: 10, Op.GLU: 11, Op.SOFTCAP: 12, Op.SOFTMAX: 18, Op.TOP_K: 19, Op.PICK: 20,
    Op.DIV_SUM: 21, Op.CLAMP: 23, Op.SCALE_POS: 25, Op.XIELU: 26,
}  # fmt: skip
(
    GET_PACKED, GET_MAPPED, GATHER, RMS_NORM, LAYER_NORM, ROPE, COPY, QUANTIZE, STORE_KV, ROPE_TABLE, COMBINE, MUL_SCALAR,
    COPY_PARTS,
) = (0, 1, 2, 3, 4, 13, 14, 15, 16, 17, 22, 24, 27)  # fmt: skip
NONE_PLACE = (0, 0, 0, 0)

Place = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class MappedWeight:
    """A matrix whose rows are looked up as they lie in the file: uint8[n_rows * row bytes]."""

    type: QuantType
    n_rows: int
    n_cols: int
    data: U8Array


Weight = PackedWeight | MappedWeight | F32Array


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Where a layer's keys and values lie in a page of its cache, and their types."""

    k_off: int
    v_off: int
    type_k: QuantType
    type_v: QuantType


@dataclass(slots=True, eq=False)
class _Buffer:
    """Memory of the arena: bytes, first and last stage that use it."""

    n_bytes: int
    first: int
    last: int
    offset: int = 0


@dataclass(slots=True)
class _At:
    """Where a tensor's rows lie before buffers are placed: a buffer of the arena, or a slot."""

    buffer: _Buffer | None
    slot: int
    column: int
    ld: int


@dataclass(slots=True)
class _Stage:
    """A stage that is being put together: calls on the program, made once buffers have places."""

    kind: str
    rows: Symbol
    factor: int = 1
    calls: list[Callable[[Program], None]] = field(default_factory=list)


class Lowering:
    """One graph on its way to a program."""

    def __init__(
        self,
        result: GraphResult,
        weight: Callable[[str], Weight],
        layout: Callable[[int, int], CacheLayout],
        n_tokens_max: int,
        n_ctx: int,
        *,
        keep_nodes: bool = False,
    ) -> None:
        self.result, self.weight, self.layout = result, weight, layout
        self.n_tokens_max, self.n_ctx, self.keep_nodes = n_tokens_max, n_ctx, keep_nodes
        self.program = Program()
        self.order = in_order(result.roots())
        self.at: dict[int, _At] = {}
        self.q8: dict[int, _At] = {}
        self.stages: list[_Stage] = []
        self.buffers: list[_Buffer] = []
        self.n_used: dict[int, int] = {}
        self.users: dict[int, list[Tensor]] = {}
        self.tables: dict[tuple[RopeSpec, str], tuple[int, _At]] = {}
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

    def node_places(self) -> dict[str, tuple[int, int, int]]:
        """For traces: (byte offset in the arena, row stride in values, values) of each named node in a buffer."""
        places = {}
        for node in self.result.nodes:
            at = self.at.get(id(node))
            if at is not None and at.buffer is not None:
                places[node.name] = (at.buffer.offset + 4 * at.column, at.ld, node.n_row)
        return places

    # -- places ------------------------------------------------------------------------------------------------------

    def _new(self, n_bytes: int) -> _Buffer:
        buffer = _Buffer((n_bytes + 63) & ~63, len(self.stages), len(self.stages))
        self.buffers.append(buffer)
        return buffer

    def _new_rows(self, node: Tensor) -> _At:
        at = _At(self._new(4 * self.n_tokens_max * node.n_row), 0, 0, node.n_row)
        self.at[id(node)] = at
        return at

    def _use(self, at: _At) -> Callable[[], Place]:
        """A tensor's place, to be asked for once buffers are placed; it is alive until the stage that is open now."""
        buffer = at.buffer
        if buffer is None:
            return lambda: (2, at.slot, 4 * at.column, at.ld)
        buffer.last = max(buffer.last, len(self.stages) - 1)
        return lambda: (1, 0, buffer.offset + 4 * at.column, at.ld)

    def _place_logits(self) -> None:
        """The logits, and what only reaches them through operations in place, lie in the caller's array at once."""
        node = self.result.logits
        if node is None:
            return
        at = _At(None, LOGITS_SLOT, 0, node.n_row)
        self._in_slot = {id(node)}
        while node.op in (Op.SOFTCAP, Op.SCALE, Op.UNARY) and len(self.users[id(node.src[0])]) == 1:
            node = node.src[0]
            self._in_slot.add(id(node))
        self._logits_at = at

    def _out(self, node: Tensor) -> _At:
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

    def _place_buffers(self) -> int:
        """Give every buffer its offset: first fit among those alive in the same stages. Returns the arena's bytes."""
        placed: list[_Buffer] = []
        end = 64
        for buffer in sorted(self.buffers, key=lambda b: (b.first, -b.n_bytes)):
            taken = sorted(
                (
                    (b.offset, b.offset + b.n_bytes)
                    for b in placed
                    if self.keep_nodes or (b.first <= buffer.last and buffer.first <= b.last)
                ),
            )
            offset = 0
            for start, stop in taken:
                if offset + buffer.n_bytes <= start:
                    break
                offset = max(offset, stop)
            buffer.offset = offset
            placed.append(buffer)
            end = max(end, offset + buffer.n_bytes)
        return end

    # -- stages ------------------------------------------------------------------------------------------------------

    def _rows_stage(self, node: Tensor, rows: Symbol) -> _Stage:
        """The open stage of row work over `rows`, or a new one."""
        return self._rows_stage_named(rows, node.name or node.op.value, 1)

    def _new_stage(self, kind: str, rows: Symbol, name: str, factor: int = 1) -> _Stage:
        stage = _Stage(kind, rows, factor)
        if kind == "rows":
            outputs = rows is Symbol.N_OUTPUTS
            stage.calls.append(lambda program: program.begin_rows(outputs, factor, name))
        self.stages.append(stage)
        return stage

    def _row_op(
        self,
        stage: _Stage,
        kind: int,
        n: int,
        out: Callable[[], Place] | None,
        x: Callable[[], Place] | None,
        y: Callable[[], Place] | None = None,
        z: Callable[[], Place] | None = None,
        *,
        arg: int = 0,
        n_sub: int = 1,
        n_rot: int = 0,
        f: float = 0.0,
        w: F32Array | None = None,
        b: F32Array | None = None,
        n_w: int = 0,
    ) -> None:
        def call(program: Program) -> None:
            px, py, pz, po = (NONE_PLACE if p is None else p() for p in (x, y, z, out))
            program.row_op(kind, arg, n, n_sub, n_rot, f, px, py, pz, po, w, b, n_w)

        stage.calls.append(call)

    def _vector(self, tensor: Tensor) -> F32Array:
        value = self.weight(tensor.name)
        assert isinstance(value, np.ndarray), tensor.name
        return value

    @staticmethod
    def _symbol(node: Tensor) -> Symbol:
        first = node.shape[0]
        assert isinstance(first, Symbol)
        return first

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _emit(self, node: Tensor) -> None:
        if node.op is Op.WEIGHT:
            return
        if node.op is Op.INPUT:
            self.at[id(node)] = _At(None, INPUT_SLOTS[node.name], 0, node.n_row)
        elif node.op in VIEWS:
            base = self.at[id(node.src[0])]
            first = node.integer("first") if node.op is Op.COLUMNS else 0
            self.at[id(node)] = _At(base.buffer, base.slot, base.column + first, base.ld)
        elif node.op is Op.MUL_MAT:
            self._emit_products(node)
        elif node.op is Op.ATTN:
            self._emit_attn(node)
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
            use_k, use_v = self._use(self.at[id(src[0])]), self._use(self.at[id(src[1])])
            self._row_op(stage, STORE_KV, src[0].n_row, None, use_k, use_v, arg=self._attn_index(spec))
            self.at[id(node)] = self.at[id(src[0])]
            return
        if node.op is Op.GET_ROWS:
            use_ids = self._use(self.at[id(src[1])])
            self._emit_get_rows(stage, node, use_ids)
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

    def _emit_elementwise(self, stage: _Stage, node: Tensor, x: Callable[[], Place], out: Callable[[], Place]) -> None:
        kind, n = ROW_OPS[node.op], node.n_row
        if node.op in (Op.ADD, Op.MUL) and node.src[1].op is Op.WEIGHT:
            self._row_op(stage, kind + 1, n, out, x, w=self._vector(node.src[1]), n_w=n)
            return
        y = self._use(self.at[id(node.src[1])]) if len(node.src) > 1 else None
        if node.op is Op.MUL and node.src[1].n_row == 1 and n > 1:
            self._row_op(stage, MUL_SCALAR, n, out, x, y)
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

    def _emit_get_rows(self, stage: _Stage, node: Tensor, ids: Callable[[], Place]) -> None:
        weight = self.weight(node.src[0].name)
        out = self._use(self._out(node))
        if isinstance(weight, PackedWeight):
            index, kind = self.program.add_table(weight), GET_PACKED
        else:
            assert isinstance(weight, MappedWeight)
            index = self.program.add_mapped(int(weight.type), weight.n_rows, weight.n_cols, weight.data)
            kind = GET_MAPPED
        self._row_op(stage, kind, node.n_row, out, ids, arg=index, f=1.0)

    def _rope_table(self, node: Tensor) -> tuple[_At, int, int]:
        """The table of cosines and sines that a rope node reads, made once per kind of rope."""
        spec = node.rope()
        factors = node.src[2] if len(node.src) > 2 else None
        key = (spec, factors.name if factors is not None else "")
        if key not in self.tables:
            index = self._rope_index(spec, factors)
            stage = self._rows_stage(node, Symbol.N_TOKENS)
            at = _At(self._new(4 * self.n_tokens_max * spec.n_rot), 0, 0, spec.n_rot)
            self._start(at)
            self.tables[key] = (index, at)
            pos = self._use(_At(None, ROPE_POS_SLOT, 0, 1))
            self._row_op(stage, ROPE_TABLE, spec.n_rot, self._use(at), pos, arg=index)
        return self.tables[key][1], spec.n_rot, ROPE_KINDS[spec.kind]

    def _rope_index(self, spec: RopeSpec, factors: Tensor | None) -> int:
        values = self._vector(factors) if factors is not None else None
        return self.program.add_rope(
            ROPE_KINDS[spec.kind], spec.n_rot, spec.freq_base, spec.freq_scale, spec.ext_factor, spec.attn_factor,
            spec.beta_fast, spec.beta_slow, spec.n_ctx_orig, values,
        )  # fmt: skip

    # -- products ----------------------------------------------------------------------------------------------------

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

    def _add_matmul(self, group: list[Tensor], outs: list[_At], x_at: _At, q8: bool, glu: int) -> None:
        stage = self.stages[-1]
        name = group[0].name or "mul_mat"
        x = self._use(x_at)
        items = []
        for node, at in zip(group, outs, strict=True):
            bias = self._vector(node.src[2]) if len(node.src) > 2 else None
            items.append((self._matrix(node), bias, self._use(at)))
        outputs = self._symbol(group[0]) is Symbol.N_OUTPUTS

        def call(program: Program) -> None:
            program.matmul(outputs, name, q8, x(), [(w, bias, place()) for w, bias, place in items], glu)

        stage.calls.append(call)

    def _matrix(self, node: Tensor) -> PackedWeight:
        value = self.weight(node.src[0].name)
        if not isinstance(value, PackedWeight):
            raise UnsupportedQuantError("?", node.src[0].name)
        return value

    def _is_q8(self, node: Tensor) -> bool:
        return wants_q8(self._matrix(node).type)

    def _activation(self, x: Tensor, q8: bool) -> _At:
        """x as a product reads it; quantised at the end of its producer's stage where that is still open."""
        if not q8:
            return self.at[id(x)]
        at = self.at[id(x)]
        key = id(x)
        if key not in self.q8:
            stage = self._rows_stage(x, self._symbol(x))
            made = _At(self._new(activation_bytes(self.n_tokens_max, x.n_row)), 0, 0, 0)
            self._start(made)
            self._row_op(stage, QUANTIZE, x.n_row, self._use(made), self._use(at))
            self.q8[key] = made
        return self.q8[key]

    # -- heads -------------------------------------------------------------------------------------------------------

    def _emit_head_products(self, node: Tensor) -> None:
        weight, outputs, name = self._experts(node.src[0].name), self._symbol(node) is Symbol.N_OUTPUTS, node.name
        stage = self._new_stage("matmul", self._symbol(node), name or "mul_mat_heads")
        x, out = self._use(self.at[id(node.src[1])]), self._use(self._out(node))
        stage.calls.append(lambda program: program.matmul_heads(outputs, name or "mul_mat_heads", x(), weight, out()))

    def _emit_head_copies(self, node: Tensor) -> None:
        stage = self._rows_stage(node, self._symbol(node))
        n_head, d = node.shape[1:]
        assert isinstance(n_head, int) and isinstance(d, int)
        at, column = self._out(node), 0
        for x in node.src:
            heads_x, d_x = x.shape[1:]
            assert isinstance(heads_x, int) and isinstance(d_x, int)
            first = node.integer("first") if node.op is Op.HEAD_COLUMNS else 0
            n = d if node.op is Op.HEAD_COLUMNS else d_x
            source = self.at[id(x)]
            from_x = self._use(_At(source.buffer, source.slot, source.column + first, source.ld))
            to = self._use(_At(at.buffer, at.slot, at.column + column, at.ld))
            self._row_op(stage, COPY_PARTS, n, to, from_x, arg=d, n_sub=n_head, n_rot=d_x if heads_x > 1 else 0)
            column += n

    # -- mixtures of experts -----------------------------------------------------------------------------------------

    def _emit_moe(self, node: Tensor) -> None:
        """Sort (token, expert) pairs by expert, multiply each expert's rows, add each token's results up."""
        rows = self._symbol(node)
        x, ids, weights = node.src[:3]
        n_gates = 1 + node.integer("gated")
        matrices, biases = node.src[3 : 4 + n_gates], node.src[4 + n_gates :]
        experts = [self._experts(m.name) for m in matrices]
        n_used, n_expert, outputs = ids.n_row, experts[0].n_expert, rows is Symbol.N_OUTPUTS
        name = node.name or "moe"
        sort = self._new_stage("sort", rows, name)
        places = [self._scratch(n) for n in (n_used * self.n_tokens_max, n_used * self.n_tokens_max, n_expert + 1)]
        token_of, sorted_of, offsets = places
        token_of.ld, sorted_of.ld = 1, n_used
        uses = [self._use(self.at[id(ids)]), *(self._use(p) for p in places)]
        sort.calls.append(lambda program: program.sort(outputs, name, n_expert, n_used, *(use() for use in uses)))

        stage = self._new_stage("rows", rows, name, n_used)
        gathered = self._scratch(n_used * self.n_tokens_max * x.n_row, x.n_row)
        self._row_op(stage, GATHER, x.n_row, self._use(gathered), self._use(self.at[id(x)]), self._use(token_of))
        hidden = self._expert_products(
            rows, name, gathered, experts[:-1], biases[:-1], offsets, n_used, UNARY_KINDS[node.text("activation")]
        )
        results = self._expert_products(rows, name, hidden, experts[-1:], biases[-1:], offsets, n_used, -1)

        stage = self._new_stage("rows", rows, name)
        out = self._use(self._out(node))
        uses_in = [self._use(p) for p in (results, self.at[id(weights)], sorted_of)]
        self._row_op(stage, COMBINE, node.n_row, out, *uses_in, n_sub=n_used)

    def _expert_products(
        self, rows: Symbol, name: str, x: _At, experts: list[PackedWeight], biases: tuple[Tensor, ...], offsets: _At,
        n_used: int, activation: int,
    ) -> _At:  # fmt: skip
        """One or two products of sorted pairs with their experts' matrices; two meet in act(first) * second."""
        n_cols, n_rows = experts[0].n_cols, experts[0].n_rows
        n_pairs = n_used * self.n_tokens_max
        q8 = wants_q8(experts[0].type)
        if any(wants_q8(e.type) != q8 for e in experts):
            raise UnsupportedQuantError("float and quantised experts mixed", name)
        if q8:
            stage = self._rows_stage_named(rows, name, n_used)
            quantised = _At(self._new(activation_bytes(n_pairs, n_cols)), 0, 0, 0)
            self._start(quantised)
            self._row_op(stage, QUANTIZE, n_cols, self._use(quantised), self._use(x))
            x = quantised
        stage = self._new_stage("matmul", rows, name, n_used)
        made = self._scratch(n_pairs * n_rows, n_rows)
        use_x, use_offsets, use_out = self._use(x), self._use(offsets), self._use(made)
        vectors: list[F32Array | None] = [self._vector(b) for b in biases]
        vectors = vectors or [None] * len(experts)
        outputs, glu = rows is Symbol.N_OUTPUTS, activation if len(experts) == 2 else -1

        def call(program: Program) -> None:
            items = [(e, b, use_out()) for e, b in zip(experts, vectors, strict=True)]
            program.matmul(outputs, name, q8, use_x(), items, glu, n_used, use_offsets())

        stage.calls.append(call)
        if activation >= 0 and glu < 0:
            stage = self._new_stage("rows", rows, name, n_used)
            use = self._use(made)
            self._row_op(stage, ROW_OPS[Op.UNARY], n_rows, use, use, arg=activation)
        return made

    def _experts(self, name: str) -> PackedWeight:
        value = self.weight(name)
        if not isinstance(value, PackedWeight) or not value.n_expert:
            raise UnsupportedQuantError("one matrix where experts are needed", name)
        return value

    def _scratch(self, n_values: int, ld: int = 0) -> _At:
        """A buffer of 4-byte values that starts in the stage that is open now."""
        at = _At(self._new(4 * n_values), 0, 0, ld)
        self._start(at)
        return at

    def _start(self, at: _At) -> None:
        assert at.buffer is not None
        at.buffer.first = at.buffer.last = len(self.stages) - 1

    def _rows_stage_named(self, rows: Symbol, name: str, factor: int) -> _Stage:
        last = self.stages[-1] if self.stages else None
        if last is not None and last.kind == "rows" and last.rows is rows and last.factor == factor:
            return last
        return self._new_stage("rows", rows, name, factor)

    # -- attention ---------------------------------------------------------------------------------------------------

    def _attn_index(self, spec: AttnSpec) -> int:
        """The layer's attention parameters in the program, made when its keys are stored."""
        if spec.il not in self.attns:
            layout = self.layout(spec.cache, spec.il)
            nodes = [n for n in self.order if n.op in (Op.STORE_KV, Op.ATTN) and n.attn().il == spec.il]
            k = next(n.src[0] for n in nodes if n.op is Op.STORE_KV)
            sinks = next((n.src[2] for n in nodes if n.op is Op.ATTN and len(n.src) > 2), None)
            rope = -1
            if spec.rope.kind != "none":
                rope = self._rope_index(spec.rope, k.src[2] if k.op is Op.ROPE and len(k.src) > 2 else None)
            self.attns[spec.il] = self.program.add_attn(
                spec.cache, spec.n_head, spec.n_head_kv, spec.d_k, spec.d_v, int(layout.type_k), int(layout.type_v),
                layout.k_off, layout.v_off, spec.scale, spec.softcap, SWA_KINDS[spec.swa_kind], spec.n_swa, spec.causal,
                spec.max_alibi_bias, None if sinks is None else self._vector(sinks), rope,
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
        out = _At(None, EMBD_SLOT, 0, embd.n_row)
        self._row_op(stage, COPY, embd.n_row, self._use(out), self._use(self.at[id(embd)]))
