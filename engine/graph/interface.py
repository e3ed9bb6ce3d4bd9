"""`GraphI`: all that an architecture may ask of the context and the memory while it builds its graph.

An architecture sees nothing else of the engine at build time. The one implementation is
`engine.context.builder.GraphBuilder`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from engine.graph.tensor import AttnSpec, RopeSpec, Tensor

if TYPE_CHECKING:
    from engine.graph.result import GraphResult


class GraphType(Enum):
    """Which graph of a model is built."""

    DEFAULT = "default"
    ENCODER = "encoder"
    DECODER = "decoder"


class GraphI(Protocol):
    """What needs to know the context or the memory; everything else is `engine.graph.ops` or `engine.arch.blocks`."""

    def get_type(self) -> GraphType:
        """Which graph is asked for."""

    def weight(self, name: str) -> Tensor:
        """The weight of that GGUF name. Raises: TensorMissingError."""

    def weight_or_none(self, name: str) -> Tensor | None:
        """The weight of that GGUF name, or None where the file has none."""

    def weight_row(self, name: str, row: int) -> Tensor:
        """One row of a matrix as a vector. Raises: TensorMissingError."""

    def build_inp(self, kind: str) -> Tensor:
        """An input: "embd" f32[n_tokens, n_embd] (token embeddings or given ones), "pos", "out_ids".

        Raises: UnsupportedCallError: for a kind that this context cannot serve.
        """

    def build_inp_rows(self, name: str) -> Tensor:
        """The batch's tokens looked up in another embedding matrix: f32[n_tokens, n].

        Embeddings as input have no tokens: then row 0 (padding) as a weight vector [n].
        """

    def build_cb(self, cur: Tensor, name: str, il: int = -1) -> Tensor:
        """Name a node ("attn_norm", 3 -> "attn_norm-3") for traces, snapshots and error messages; returns it."""

    def build_lora_mm(self, weight: Tensor, cur: Tensor, bias: Tensor | None = None) -> Tensor:
        """`mul_mat` plus the active LoRA adapters of this weight."""

    def build_rope_factors(self, il: int) -> Tensor | None:
        """The frequency factors f32[n_rot / 2] for this context and layer, or None."""

    def build_attn(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttnSpec,
        rope: RopeSpec,
        sinks: Tensor | None,
        rel_bias: Tensor | None = None,
    ) -> Tensor:
        """Store k and v, attend with q: heads f32[n_tokens, n_head, d_k] -> f32[n_tokens, n_head * d_v].

        The memory fills in what only it knows (which cache, which window).

        Args:
            sinks: f32[n_head]: logits that take attention but have no value.
            rel_bias: f32[n_buckets * n_head], added to scores by relative position (see `engine.graph.rel_pos`); a
                layer that is not causal has buckets for later cells.
        """

    def build_attn_shared(self, q: Tensor, spec: AttnSpec, rope: RopeSpec) -> Tensor:
        """Attend with q to what layer spec.il, which was built before, has stored."""

    def build_attn_cross(self, q: Tensor, spec: AttnSpec) -> Tensor:
        """Attend with q to all cells of the sequence's source, which an encoder has stored for layer spec.il.

        Raises: UnsupportedCallError: on a context without sources.
        """

    def build_store_cross(self, k: Tensor, v: Tensor, spec: AttnSpec) -> None:
        """Keep k and v as what `build_attn_cross` of layer spec.il sees; nothing in an encoder without a decoder."""

    def build_cvec(self, cur: Tensor, il: int) -> Tensor:
        """The output of layer il plus the active control vectors."""

    def build_out(self, cur: Tensor) -> Tensor:
        """Only the rows whose results are asked for: f32[n_tokens, ...] -> f32[n_outputs, ...]."""

    def result(self, *, embd: Tensor | None = None, logits: Tensor | None = None) -> GraphResult:
        """The finished graph."""
