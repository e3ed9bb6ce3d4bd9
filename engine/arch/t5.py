"""t5: T5 and its kin (Flan-T5, UMT5): an encoder, and a decoder that looks at what the encoder made of a source.

Source: arXiv:1910.10683, arXiv:2002.05202 (the gated feed-forward); GGUF architectures "t5" and, for the encoder alone,
"t5encoder". Positions are relative: biases on scores, from the first layer's table for all, or from each layer's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import Arch, LayerMemory, TensorSpec
from engine.graph import ops
from engine.graph.interface import GraphType
from engine.graph.tensor import AttnSpec, RopeSpec
from engine.hparams import read_hparams

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor

NO_ROPE = RopeSpec("none", 0, 10000.0)
SIZES = {
    (6, 2048): "60M", (8, 1024): "80M", (12, 3072): "220M", (12, 2048): "250M", (24, 4096): "770M", (24, 2816): "780M",
    (24, 16384): "3B", (24, 5120): "3B", (24, 65536): "11B", (24, 10240): "11B",
}  # fmt: skip
"""Labels by (n_layer, n_ff). Source: the configurations of google's t5-*, t5-v1_1-* and flan-t5-* models."""


class T5(Arch):
    """Norms before each part, unscaled scores, no biases.

    Attributes:
        n_layer_dec: layers of the decoder; `hparams` counts the encoder's.
        n_buckets: of relative positions.
        gated: the feed-forward has a gate.
    """

    name = "t5"
    has_encoder = True

    def __init__(self, gguf: GGUFFile) -> None:
        self.hparams = hp = read_hparams(gguf, "none")
        self.n_layer_dec = 0
        self.n_buckets = gguf.get_int(f"{self.name}.attention.relative_buckets_count", lo=4, hi=4096)
        self.gated = "enc.blk.0.ffn_gate.weight" in gguf.tensors
        if self.has_encoder:
            self.n_layer_dec = gguf.get_int("t5.decoder_block_count", hp.n_layer, lo=1, hi=4096)
            self.decoder_start_token_id = gguf.get_int("t5.decoder_start_token_id", 0, lo=0, hi=hp.n_vocab - 1)

    def cross_layer(self, il: int) -> int:
        """The number by which memories know the source's keys and values for the decoder's layer il."""
        return max(self.hparams.n_layer, self.n_layer_dec) + il

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor of the model, in the order of use."""
        hp = self.hparams
        yield TensorSpec("token_embd.weight", (hp.n_vocab, hp.n_embd))
        for side, n_layer in self._sides():
            for il in range(n_layer):
                blk = f"{side}.blk.{il}"
                yield from self._attn_tensors(f"{blk}.attn")
                n_bias = (self.n_buckets, hp.n_head[0])
                yield TensorSpec(f"{blk}.attn_rel_b.weight", n_bias, required=il == 0, flat=True)
                if side == "dec":
                    yield from self._attn_tensors(f"{blk}.cross_attn")
                yield TensorSpec(f"{blk}.ffn_norm.weight", (hp.n_embd,))
                if self.gated:
                    yield TensorSpec(f"{blk}.ffn_gate.weight", (hp.n_ff[0], hp.n_embd))
                yield TensorSpec(f"{blk}.ffn_up.weight", (hp.n_ff[0], hp.n_embd))
                yield TensorSpec(f"{blk}.ffn_down.weight", (hp.n_embd, hp.n_ff[0]))
            yield TensorSpec(f"{side}.output_norm.weight", (hp.n_embd,))
        yield TensorSpec("output.weight", (hp.n_vocab, hp.n_embd), required=False)

    def _sides(self) -> tuple[tuple[str, int], ...]:
        """The halves that the file has, with their layers."""
        return ("enc", self.hparams.n_layer), *((("dec", self.n_layer_dec),) if self.n_layer_dec else ())

    def _attn_tensors(self, name: str) -> Iterator[TensorSpec]:
        hp = self.hparams
        d_k, d_v = hp.n_embd_head_k, hp.n_embd_head_v
        yield TensorSpec(f"{name}_norm.weight", (hp.n_embd,))
        yield TensorSpec(f"{name}_q.weight", (hp.n_head[0] * d_k, hp.n_embd))
        yield TensorSpec(f"{name}_k.weight", (hp.n_head_kv[0] * d_k, hp.n_embd))
        yield TensorSpec(f"{name}_v.weight", (hp.n_head_kv[0] * d_v, hp.n_embd))
        yield TensorSpec(f"{name}_o.weight", (hp.n_embd, hp.n_head[0] * d_v))

    # -- graph ---------------------------------------------------------------------------------------------------

    def build(self, g: GraphI) -> GraphResult:
        """The encoder's graph or the decoder's."""
        return self.build_encoder(g) if g.get_type() is GraphType.ENCODER else self.build_decoder(g)

    def build_encoder(self, g: GraphI) -> GraphResult:
        """The normed hidden rows, and from them every decoder layer's keys and values."""
        inp = g.build_cb(g.build_inp("embd"), "inp_embd")
        for il in range(self.hparams.n_layer):
            inp = g.build_cb(ops.add(self.build_self_attn(g, inp, "enc", il), inp), "ffn_inp", il)
            inp = g.build_cb(g.build_cvec(self.build_ffn(g, inp, "enc", il), il), "l_out", il)
        embd = self.build_norm(g, inp, "enc.output_norm", -1)
        for il in range(self.n_layer_dec):
            k, v = (self.build_heads(g, f"dec.blk.{il}.cross_attn_{part}", embd) for part in "kv")
            g.build_store_cross(k, v, self.attn_spec(self.cross_layer(il), causal=False))
        return g.result(embd=g.build_cb(g.build_out(embd), "result_embd"))

    def build_decoder(self, g: GraphI) -> GraphResult:
        """Each layer looks at the tokens before it, then at the source."""
        inp = g.build_cb(g.build_inp("embd"), "inp_embd")
        for il in range(self.n_layer_dec):
            inp = g.build_cb(ops.add(self.build_self_attn(g, inp, "dec", il), inp), "cross_inp", il)
            cur = self.build_cross_attn(g, inp, il)
            if il == self.n_layer_dec - 1:
                cur, inp = g.build_out(cur), g.build_out(inp)
            inp = g.build_cb(ops.add(cur, inp), "ffn_inp", il)
            inp = g.build_cb(g.build_cvec(self.build_ffn(g, inp, "dec", il), il), "l_out", il)
        embd = self.build_norm(g, inp, "dec.output_norm", -1)
        head = g.weight_or_none("output.weight")
        # The first generation, which has no gate, shares the embedding matrix with the head at another scale.
        is_scaled = head is None and not self.gated
        rows = ops.scale(embd, self.hparams.n_embd**-0.5) if is_scaled else embd
        logits = g.build_lora_mm(head or g.weight("token_embd.weight"), rows)
        return g.result(embd=embd, logits=g.build_cb(logits, "result_output"))

    def build_self_attn(self, g: GraphI, inp: Tensor, side: str, il: int) -> Tensor:
        """Attention among the tokens themselves."""
        name = f"{side}.blk.{il}.attn"
        cur = self.build_norm(g, inp, f"{name}_norm", il)
        q, k, v = (self.build_heads(g, f"{name}_{part}", cur) for part in "qkv")
        bias = g.weight_or_none(f"{name}_rel_b.weight") or g.weight(f"{side}.blk.0.attn_rel_b.weight")
        cur = g.build_attn(q, k, v, self.attn_spec(il, causal=side == "dec"), NO_ROPE, None, bias)
        return g.build_cb(self.build_mm(g, f"{name}_o", g.build_cb(cur, "kqv_out", il)), "attn_out", il)

    def build_cross_attn(self, g: GraphI, inp: Tensor, il: int) -> Tensor:
        """Attention to the source."""
        name = f"dec.blk.{il}.cross_attn"
        q = self.build_heads(g, f"{name}_q", self.build_norm(g, inp, f"{name}_norm", il))
        cur = g.build_attn_cross(q, self.attn_spec(self.cross_layer(il), causal=False))
        return g.build_cb(self.build_mm(g, f"{name}_o", g.build_cb(cur, "cross_kqv_out", il)), "cross_out", il)

    def build_ffn(self, g: GraphI, inp: Tensor, side: str, il: int) -> Tensor:
        """Norm, feed-forward and residual."""
        blk = f"{side}.blk.{il}"
        cur = self.build_norm(g, inp, f"{blk}.ffn_norm", il)
        up = self.build_mm(g, f"{blk}.ffn_up", cur)
        hidden = ops.glu(self.build_mm(g, f"{blk}.ffn_gate", cur), up, "gelu") if self.gated else ops.unary(up, "relu")
        return ops.add(g.build_cb(self.build_mm(g, f"{blk}.ffn_down", hidden), "ffn_out", il), inp)

    def build_heads(self, g: GraphI, name: str, cur: Tensor) -> Tensor:
        """A projection cut into heads."""
        out = self.build_mm(g, name, cur)
        d = self.hparams.n_embd_head_v if name.endswith("_v") else self.hparams.n_embd_head_k
        return ops.reshape(out, out.n_row // d, d)

    def build_mm(self, g: GraphI, name: str, cur: Tensor) -> Tensor:
        """A projection by its name."""
        return g.build_lora_mm(g.weight(f"{name}.weight"), cur)

    def build_norm(self, g: GraphI, cur: Tensor, name: str, il: int) -> Tensor:
        """A norm by its name."""
        normed = ops.rms_norm(cur, g.weight(f"{name}.weight"), self.hparams.f_norm_rms_eps)
        return g.build_cb(normed, name.rpartition(".")[2], il)

    # -- memory --------------------------------------------------------------------------------------------------

    def attn_spec(self, il: int, *, causal: bool) -> AttnSpec:
        """A layer's attention; scores are not scaled."""
        hp = self.hparams
        return AttnSpec(
            cache=0, il=il, n_head=hp.n_head[0], n_head_kv=hp.n_head_kv[0], d_k=hp.n_embd_head_k, d_v=hp.n_embd_head_v,
            scale=1.0, rope=NO_ROPE, causal=causal,
        )  # fmt: skip

    def memory_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of the decoder's own tokens."""
        return tuple(self._layer_memory(il) for il in range(self.n_layer_dec))

    def encoder_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of the encoder's layers."""
        return tuple(self._layer_memory(il) for il in range(self.hparams.n_layer))

    def cross_spec(self) -> tuple[LayerMemory, ...]:
        """Keys and values of the source, for every layer of the decoder."""
        return tuple(self._layer_memory(self.cross_layer(il)) for il in range(self.n_layer_dec))

    def _layer_memory(self, il: int) -> LayerMemory:
        hp = self.hparams
        return LayerMemory(il, hp.n_head_kv[0], hp.n_embd_head_k, hp.n_embd_head_v, NO_ROPE)

    def type_name(self) -> str:
        """The size label, by layers and n_ff."""
        return SIZES.get((self.hparams.n_layer, self.hparams.n_ff[0]), "")


class T5Encoder(T5):
    """The encoder alone: its hidden rows are the result."""

    name = "t5encoder"
    has_encoder = False
    is_encoder = True

    def build(self, g: GraphI) -> GraphResult:
        """The encoder's graph."""
        return self.build_encoder(g)

    def memory_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of the encoder's layers, while they are computed."""
        return self.encoder_spec(n_ctx)
