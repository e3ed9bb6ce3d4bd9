"""Lowering what works on parts: mixtures of experts, and products of each head with its own matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cext.executor import Program
from cext.weights import PackedWeight, wants_q8
from engine.backend.cpu.stages import (
    COMBINE,
    COPY_PARTS,
    GATHER,
    ROW_OPS,
    UNARY_KINDS,
    At,
    StageWriter,
)
from engine.errors import UnsupportedQuantError
from engine.graph.tensor import Op, Symbol, Tensor
from engine.types import F32Array


class PartLowering(StageWriter, ABC):
    """The operations of which a stage is more than rows times one matrix."""

    @abstractmethod
    def _out(self, node: Tensor) -> At:
        """Where a node's result goes; called while its stage is open."""

    def _emit_head_products(self, node: Tensor) -> None:
        weight, outputs, name = (
            self._packed(node.src[0].name, experts=True),
            self._symbol(node) is Symbol.N_OUTPUTS,
            node.name,
        )
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
            from_x = self._use(At(source.buffer, source.slot, source.column + first, source.ld))
            to = self._use(At(at.buffer, at.slot, at.column + column, at.ld))
            self._row_op(stage, COPY_PARTS, n, to, from_x, arg=d, n_sub=n_head, n_rot=d_x if heads_x > 1 else 0)
            column += n

    def _emit_moe(self, node: Tensor) -> None:
        """Sort (token, expert) pairs by expert, multiply each expert's rows, add each token's results up."""
        rows = self._symbol(node)
        x, ids, weights = node.src[:3]
        n_gates = 1 + node.integer("gated")
        matrices, biases = node.src[3 : 4 + n_gates], node.src[4 + n_gates :]
        experts = [self._packed(m.name, experts=True) for m in matrices]
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
        activation = UNARY_KINDS[node.text("activation")]
        if experts[0].n_rows == 2 * experts[-1].n_cols:
            hidden = self._expert_products(rows, name, gathered, experts[:-1], biases[:-1], offsets, n_used, -1)
            self._halves_glu(rows, name, hidden, experts[-1].n_cols, n_used, activation)
        else:
            hidden = self._expert_products(rows, name, gathered, experts[:-1], biases[:-1], offsets, n_used, activation)
        for matrix, expert in zip(matrices, experts, strict=True):
            inputs = hidden if expert is experts[-1] else gathered
            self.expert_inputs.append((matrix.name, inputs, expert.n_cols, n_expert, offsets))
        results = self._expert_products(rows, name, hidden, experts[-1:], biases[-1:], offsets, n_used, -1)

        stage = self._new_stage("rows", rows, name)
        out = self._use(self._out(node))
        uses_in = [self._use(p) for p in (results, self.at[id(weights)], sorted_of)]
        self._row_op(stage, COMBINE, node.n_row, out, *uses_in, n_sub=n_used)

    def _halves_glu(self, rows: Symbol, name: str, x: At, n: int, n_used: int, activation: int) -> None:
        """act(first n values) * (next n values) of each sorted pair's row, in place of the first."""
        stage = self._rows_stage_named(rows, name, n_used)
        gate, up = self._use(x), self._use(At(x.buffer, x.slot, x.column + n, x.ld))
        self._row_op(stage, ROW_OPS[Op.GLU], n, gate, gate, up, arg=activation)

    def _expert_products(
        self, rows: Symbol, name: str, x: At, experts: list[PackedWeight], biases: tuple[Tensor, ...], offsets: At,
        n_used: int, activation: int,
    ) -> At:  # fmt: skip
        """One or two products of sorted pairs with their experts' matrices; two meet in act(first) * second."""
        n_cols, n_rows = experts[0].n_cols, experts[0].n_rows
        n_pairs = n_used * self.n_tokens_max
        q8 = wants_q8(experts[0].type)
        if any(wants_q8(e.type) != q8 for e in experts):
            raise UnsupportedQuantError("float and quantised experts mixed", name)
        if q8:
            stage = self._rows_stage_named(rows, name, n_used)
            x = self._quantised(stage, x, n_cols, n_used)
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
