"""Lowering recurrences: each is a stage of its own that reads and leaves a part of the sequences' slots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backend.cpu.lower_parts import PartLowering
from engine.backend.cpu.stages import Weight
from engine.errors import UnsupportedCallError
from engine.graph.tensor import Op, Tensor
from engine.types import F32Array

KINDS = {Op.CONV: 0, Op.TOKEN_SHIFT: 1, Op.SSM_SCAN: 2, Op.DELTA_NET: 3, Op.WKV6: 4, Op.WKV7: 5}
"""RecurrentKind in cext/src/recurrent.h."""

StateOffsets = Callable[[int], tuple[int, int]]
"""A layer's short memory and state in a slot, in bytes."""


class RecurrentLowering(PartLowering):
    """The operations that carry a state from token to token."""

    def __init__(
        self,
        weight: Callable[[str], Weight],
        n_tokens_max: int,
        state_offsets: StateOffsets | None = None,
        *,
        keep_nodes: bool = False,
    ) -> None:
        super().__init__(weight, n_tokens_max, keep_nodes=keep_nodes)
        self.state_offsets = state_offsets

    def _emit_recurrent(self, node: Tensor) -> None:
        if self.state_offsets is None:
            raise UnsupportedCallError(node.op.value, "a context without recurrent states")
        r_off, s_off = self.state_offsets(node.integer("il"))
        state_off = (r_off if node.text("part") == "r" else s_off) + 4 * node.integer("first")
        n_head, d_k, d_v, n_group, arg = self._sizes(node)
        w, b = self._vectors(node, n_head)
        n_w, n_b = 0 if w is None else len(w), 0 if b is None else len(b)
        inputs = [s for s in node.src if s.op is not Op.WEIGHT]
        name = node.name or node.op.value
        stage = self._new_stage("recurrent", self._symbol(node), name)
        uses = [self._use(self.at[id(x)]) for x in inputs]
        out = self._use(self._out(node))
        kind = KINDS[node.op]
        stage.calls.append(
            lambda program: program.recurrent(
                name, kind, arg, n_head, d_k, d_v, n_group, state_off, [use() for use in uses], out(), w, n_w, b, n_b
            )
        )

    @staticmethod
    def _sizes(node: Tensor) -> tuple[int, int, int, int, int]:
        """(n_head, d_k, d_v, n_group, arg) as cext/src/recurrent.h has them."""
        src = node.src
        if node.op is Op.CONV:
            return node.n_row, src[1].n_values // node.n_row, 1, 1, int(node.text("activation") == "silu")
        if node.op is Op.TOKEN_SHIFT:
            return node.n_row, 2, 1, 1, 0
        n_head, d_v = node.shape[1:]
        assert isinstance(n_head, int) and isinstance(d_v, int)
        if node.op is Op.SSM_SCAN:
            n_group, d_state = src[2].shape[1:]
            assert isinstance(n_group, int) and isinstance(d_state, int)
            return n_head, d_state, d_v, n_group, int(src[4].n_values != n_head)
        if node.op is Op.DELTA_NET:
            n_group, d_k = src[0].shape[1:]
            assert isinstance(n_group, int) and isinstance(d_k, int)
            return n_head, d_k, d_v, n_group, node.integer("tiled")
        return n_head, d_v, d_v, n_head, 0

    def _vectors(self, node: Tensor, n_channels: int) -> tuple[F32Array | None, F32Array | None]:
        """The recurrence's own weights; a convolution's by tap."""
        found = [self._vector(s) for s in node.src if s.op is Op.WEIGHT]
        if node.op is Op.CONV:
            found[0] = np.ascontiguousarray(found[0].reshape(n_channels, -1).T).reshape(-1)
        return found[0] if found else None, found[1] if len(found) > 1 else None
