"""Stages of a program on their way: where values lie, which loop an operation joins, buffers by liveness.

The lower half of lowering (`engine.backend.cpu.lower` has the upper one): what is written down here are calls on a
`Program`, made once every buffer has its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cext.executor import Program
from cext.weights import PackedWeight, activation_bytes
from engine.errors import UnsupportedQuantError
from engine.gguf import dequantize
from engine.graph.tensor import Op, Symbol, Tensor
from engine.types import F32Array, QuantType, U8Array

ROPE_KINDS = {"none": 0, "norm": 1, "neox": 2, "vision": 3}
N_ROPE_AXES = 4  # positions of a token in a program whose ropes have sections
SWA_KINDS = {"none": 0, "standard": 1, "chunked": 2, "symmetric": 3}
UNARY_KINDS = {
    "silu": 0, "gelu": 1, "gelu_erf": 2, "gelu_quick": 3, "relu": 4, "relu_sqr": 5, "sigmoid": 6, "tanh": 7,
    "softplus": 8, "exp": 9, "oai": 100,
}  # fmt: skip
ROW_OPS = {
    Op.ADD: 5, Op.MUL: 7, Op.SCALE: 9, Op.UNARY: 10, Op.GLU: 11, Op.SOFTCAP: 12, Op.SOFTMAX: 18, Op.TOP_K: 19, Op.PICK: 20,
    Op.DIV_SUM: 21, Op.CLAMP: 23, Op.SCALE_POS: 25, Op.XIELU: 26,
    Op.MUL_HEAD_SUM: 28,
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

    def row(self, row: int) -> F32Array:
        """One row, de-quantised: f32[n_cols]."""
        n_bytes = len(self.data) // self.n_rows
        return dequantize(self.type, self.data[row * n_bytes : (row + 1) * n_bytes], (self.n_cols,))


Weight = PackedWeight | MappedWeight | F32Array


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Where a layer's keys and values lie in a page of its cache, and their types; v_in_k: V is a part of K's rows."""

    k_off: int
    v_off: int
    type_k: QuantType
    type_v: QuantType
    v_in_k: bool = False


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of the arena: bytes, first and last stage that use it."""

    n_bytes: int
    first: int
    last: int
    offset: int = 0


@dataclass(slots=True)
class At:
    """Where a tensor's rows lie before buffers are placed: a buffer of the arena, or a slot."""

    buffer: Buffer | None
    slot: int
    column: int
    ld: int


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node's values lie in the arena after a run that kept them.

    Attributes:
        name: the node's, or that of the weight that it is multiplied with.
        offset: bytes from the arena's start; ld: values from one row to the next.
        n: values of a row.
        rows: how many rows there are, without experts.
        n_expert: with them, rows are pairs sorted by expert; first_pairs: i32[n_expert + 1], the first pair of each, in
            bytes from the arena's start.
    """

    name: str
    offset: int
    ld: int
    n: int
    rows: Symbol
    n_expert: int = 0
    first_pairs: int = 0


@dataclass(slots=True)
class Stage:
    """A stage that is being put together: calls on the program, made once buffers have places."""

    kind: str
    rows: Symbol
    factor: int = 1
    calls: list[Callable[[Program], None]] = field(default_factory=list)


class StageWriter:
    """Stages, buffers and places; knows operations only by their numbers.

    Args:
        weight: a weight by its name.
        n_tokens_max: rows of the largest micro batch.
        keep_nodes: give every buffer a place of its own, so that all can be read after a run.
    """

    def __init__(self, weight: Callable[[str], Weight], n_tokens_max: int, *, keep_nodes: bool = False) -> None:
        self.weight, self.n_tokens_max, self.keep_nodes = weight, n_tokens_max, keep_nodes
        self.n_outputs_max = n_tokens_max
        self.program = Program()
        self.at: dict[int, At] = {}
        self.q8: dict[int, At] = {}
        self.expert_inputs: list[tuple[str, At, int, int, At]] = []
        self.stages: list[Stage] = []
        self.buffers: list[Buffer] = []

    def _new(self, n_bytes: int) -> Buffer:
        buffer = Buffer((n_bytes + 63) & ~63, len(self.stages), len(self.stages))
        self.buffers.append(buffer)
        return buffer

    def _new_rows(self, node: Tensor) -> At:
        at = At(self._new(4 * self._rows_max(node) * node.n_row), 0, 0, node.n_row)
        self.at[id(node)] = at
        return at

    def _rows_max(self, node: Tensor) -> int:
        return self.n_outputs_max if self._symbol(node) is Symbol.N_OUTPUTS else self.n_tokens_max

    def _scratch(self, n_values: int, ld: int = 0) -> At:
        """A buffer of 4-byte values that starts in the stage that is open now."""
        at = At(self._new(4 * n_values), 0, 0, ld)
        self._start(at)
        return at

    def _start(self, at: At) -> None:
        assert at.buffer is not None
        at.buffer.first = at.buffer.last = len(self.stages) - 1

    def _use(self, at: At) -> Callable[[], Place]:
        """A tensor's place, to be asked for once buffers are placed; it is alive until the stage that is open now."""
        buffer = at.buffer
        if buffer is None:
            return lambda: (2, at.slot, 4 * at.column, at.ld)
        buffer.last = max(buffer.last, len(self.stages) - 1)
        return lambda: (1, 0, buffer.offset + 4 * at.column, at.ld)

    def _place_buffers(self) -> int:
        """Give every buffer its offset: first fit among those alive in the same stages. Returns the arena's bytes."""
        placed: list[Buffer] = []
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

    def _rows_stage(self, node: Tensor, rows: Symbol) -> Stage:
        """The open stage of row work over `rows`, or a new one."""
        return self._rows_stage_named(rows, node.name or node.op.value, 1)

    def _rows_stage_named(self, rows: Symbol, name: str, factor: int) -> Stage:
        last = self.stages[-1] if self.stages else None
        if last is not None and last.kind == "rows" and last.rows is rows and last.factor == factor:
            return last
        return self._new_stage("rows", rows, name, factor)

    def _new_stage(self, kind: str, rows: Symbol, name: str, factor: int = 1) -> Stage:
        stage = Stage(kind, rows, factor)
        if kind == "rows":
            outputs = rows is Symbol.N_OUTPUTS
            stage.calls.append(lambda program: program.begin_rows(outputs, factor, name))
        self.stages.append(stage)
        return stage

    def _row_op(
        self,
        stage: Stage,
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

    def _quantised(self, stage: Stage, x: At, n_cols: int, rows_per_token: int = 1) -> At:
        """The 8-bit form of x f32[n_tokens * rows_per_token, n_cols], made in a stage of row work."""
        made = At(self._new(activation_bytes(self.n_tokens_max, rows_per_token, n_cols)), 0, 0, 0)
        self._start(made)
        self._row_op(stage, QUANTIZE, n_cols, self._use(made), self._use(x))
        return made

    def _vector(self, tensor: Tensor) -> F32Array:
        value = self.weight(tensor.name)
        assert isinstance(value, np.ndarray), tensor.name
        return value

    def _packed(self, name: str, *, experts: bool = False) -> PackedWeight:
        value = self.weight(name)
        if not isinstance(value, PackedWeight) or bool(value.n_expert) != experts:
            raise UnsupportedQuantError("experts' matrices" if not experts else "one matrix", name)
        return value

    @staticmethod
    def _symbol(node: Tensor) -> Symbol:
        first = node.shape[0]
        assert isinstance(first, Symbol)
        return first
