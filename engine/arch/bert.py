"""bert and nomic-bert: encoders whose tokens see each other in both directions.

Source: arXiv:1810.04805, arXiv:2402.01613; GGUF architectures of these names. The hidden rows are the result; a context pools them. A file may have a
classification head (a "cross-encoder"): pooler and classifier of BertForSequenceClassification, on each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.decoder import DenseDecoder
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor

N_TOKEN_TYPES = 2  # first and second sentence; a text alone is a first one


class Bert(DenseDecoder):
    """Norms after each residual, learned positions, biases everywhere."""

    name = "bert"
    is_encoder = True
    rope_kind = "none"
    norm = "layer"
    attn_norm = ""
    ffn_norm = ""
    activation = "gelu_erf"
    gated = False
    has_position_embd = True
    has_embd_norm = True
    type_names = {3: "17M", 6: "22M", 12: "110M", 24: "335M"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        head = gguf.tensors.get("cls.output.weight")
        self.n_cls_out = head.shape[0] if head is not None else 0

    def tensors(self) -> Iterator[TensorSpec]:
        """The decoder's without final norm and head, the token types, the norms behind each part, the classifier."""
        hp = self.hparams
        for spec in super().tensors():
            if not spec.name.startswith("output"):
                yield spec
        yield TensorSpec("token_types.weight", (N_TOKEN_TYPES, hp.n_embd), required=False)
        for il in range(hp.n_layer):
            yield from self.norm_tensors(f"blk.{il}.attn_output_norm", hp.n_embd)
            yield from self.norm_tensors(f"blk.{il}.layer_output_norm", hp.n_embd)
        if self.n_cls_out:
            for name, n_out in (("cls", hp.n_embd), ("cls.output", self.n_cls_out)):
                yield TensorSpec(f"{name}.weight", (n_out, hp.n_embd), required=name == "cls.output")
                yield TensorSpec(f"{name}.bias", (n_out,), required=False)

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """Tokens, their type and their position, normed."""
        inp = g.build_inp("embd")
        if g.weight_or_none("token_types.weight") is not None:
            inp = ops.add(inp, g.weight_row("token_types.weight", 0))
        if self.has_position_embd:
            inp = ops.add(inp, ops.get_rows(g.weight("position_embd.weight"), g.build_inp("pos")))
        return g.build_cb(self.build_norm(g, inp, "token_embd_norm", -1), "inp_embd")

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention, residual, norm; feed-forward, residual, norm."""
        cur = self.build_self_attn(g, inp, pos, il)
        if il == self.hparams.n_layer - 1:
            cur, inp = g.build_out(cur), g.build_out(inp)
        inp = self.build_norm(g, ops.add(cur, inp), f"blk.{il}.attn_output_norm", il)
        cur = g.build_cb(self.build_ffn(g, inp, il), "ffn_out", il)
        return g.build_cb(self.build_norm(g, ops.add(cur, inp), f"blk.{il}.layer_output_norm", il), "l_out", il)

    def build_head(self, g: GraphI, inp: Tensor) -> GraphResult:
        """The hidden rows, and the scores of each where there is a classifier."""
        embd = g.build_cb(inp, "result_embd")
        if not self.n_cls_out:
            return g.result(embd=embd)
        pooled = embd
        if g.weight_or_none("cls.weight") is not None:
            pooled = ops.unary(self.build_mm(g, "cls", embd), "tanh")
        return g.result(embd=embd, logits=g.build_cb(self.build_mm(g, "cls.output", pooled), "result_cls"))


class NomicBert(Bert):
    """Rotated heads instead of learned positions, a gate, one matrix for q, k and v."""

    name = "nomic-bert"
    rope_kind = "neox"
    activation = "silu"
    gated = True
    fused_qkv = True
    has_position_embd = False
    type_names = {12: "137M"}
