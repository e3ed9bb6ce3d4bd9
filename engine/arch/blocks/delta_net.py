"""The gated delta net of Qwen3-Next and Qwen3.5. Source: arXiv:2412.06464."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.errors import HparamError
from engine.graph import ops, recurrent
from engine.memory.base import LayerState

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


@dataclass(frozen=True, slots=True)
class DeltaSizes:
    """Sizes of a gated delta net.

    Attributes:
        n_conv: inputs that a channel's convolution sees.
        n_head_k, d_k: key heads (`ssm.group_count`, `ssm.state_size`).
        n_head_v, d_v: value heads (`ssm.time_step_rank`, `ssm.inner_size` / n_head_v).
    """

    n_conv: int
    n_head_k: int
    d_k: int
    n_head_v: int
    d_v: int

    @property
    def n_k(self) -> int:
        """Values of all keys."""
        return self.n_head_k * self.d_k

    @property
    def n_v(self) -> int:
        """Values of all values."""
        return self.n_head_v * self.d_v

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: q, k and v."""
        return 2 * self.n_k + self.n_v


def read_delta_net(gguf: GGUFFile) -> DeltaSizes:
    """The sizes from the file. Raises: HparamError."""
    arch = f"{gguf.architecture}.ssm"
    n_inner = gguf.get_int(f"{arch}.inner_size", lo=1, hi=1 << 20)
    n_head_k = gguf.get_int(f"{arch}.group_count", lo=1, hi=1 << 16)
    n_head_v = gguf.get_int(f"{arch}.time_step_rank", lo=1, hi=1 << 16)
    if n_inner % n_head_v or n_head_v % n_head_k:
        heads = f"{n_head_v} value heads for {n_inner} values and {n_head_k} key heads"
        raise HparamError(f"{arch}.time_step_rank", heads, gguf.path)
    n_conv = gguf.get_int(f"{arch}.conv_kernel", lo=2, hi=64)
    d_k = gguf.get_int(f"{arch}.state_size", lo=1, hi=1 << 16)
    return DeltaSizes(n_conv, n_head_k, d_k, n_head_v, n_inner // n_head_v)


def delta_net_state(il: int, sizes: DeltaSizes) -> LayerState:
    """What a layer carries along."""
    return LayerState(il, (sizes.n_conv - 1) * sizes.conv_width, sizes.n_head_v * sizes.d_k * sizes.d_v)


def delta_net_tensors(il: int, sizes: DeltaSizes, n_embd: int, *, joint: bool) -> Iterator[TensorSpec]:
    """The tensors that `build_gated_delta_net` reads; joint: gate and beta come from one matrix, by key head."""
    blk = f"blk.{il}"
    yield TensorSpec(f"{blk}.attn_qkv.weight", (sizes.conv_width, n_embd))
    yield TensorSpec(f"{blk}.attn_gate.weight", (sizes.n_v, n_embd))
    yield TensorSpec(f"{blk}.ssm_conv1d.weight", (sizes.conv_width, sizes.n_conv), flat=True)
    if joint:
        yield TensorSpec(f"{blk}.ssm_ba.weight", (2 * sizes.n_head_v, n_embd))
    else:
        yield TensorSpec(f"{blk}.ssm_alpha.weight", (sizes.n_head_v, n_embd))
        yield TensorSpec(f"{blk}.ssm_beta.weight", (sizes.n_head_v, n_embd))
    yield TensorSpec(f"{blk}.ssm_dt.bias", (sizes.n_head_v,))
    yield TensorSpec(f"{blk}.ssm_a", (sizes.n_head_v,))
    yield TensorSpec(f"{blk}.ssm_norm.weight", (sizes.d_v,))
    yield TensorSpec(f"{blk}.ssm_out.weight", (n_embd, sizes.n_v))


def build_gated_delta_net(g: GraphI, cur: Tensor, il: int, sizes: DeltaSizes, eps: float, *, joint: bool) -> Tensor:
    """A gated delta net: f32[n_tokens, n_embd], normed -> f32[n_tokens, n_embd].

    Args:
        g: the graph.
        cur: normed rows.
        il: layer; its tensors are those of `delta_net_tensors`.
        sizes: heads.
        eps: of the norms.
        joint: one matrix gives beta and alpha of each key head's value heads, which follow each other; else each has
            its own, and a value head h belongs to key head h % n_head_k.
    """
    blk = f"blk.{il}"
    qkv = g.build_lora_mm(g.weight(f"{blk}.attn_qkv.weight"), cur)
    z = g.build_lora_mm(g.weight(f"{blk}.attn_gate.weight"), cur)
    beta, alpha = _beta_alpha(g, cur, il, sizes, joint=joint)
    qkv = g.build_cb(recurrent.conv(qkv, g.weight(f"{blk}.ssm_conv1d.weight"), None, il, "silu"), "ssm_conv", il)
    q = ops.l2_norm(ops.reshape(ops.columns(qkv, 0, sizes.n_k), sizes.n_head_k, sizes.d_k), eps)
    k = ops.l2_norm(ops.reshape(ops.columns(qkv, sizes.n_k, sizes.n_k), sizes.n_head_k, sizes.d_k), eps)
    v = ops.reshape(ops.columns(qkv, 2 * sizes.n_k, sizes.n_v), sizes.n_head_v, sizes.d_v)
    gate = ops.unary(ops.add(alpha, g.weight(f"{blk}.ssm_dt.bias")), "softplus")
    gate = g.build_cb(ops.mul(gate, g.weight(f"{blk}.ssm_a")), "delta_gate", il)
    q = ops.scale(q, 1.0 / math.sqrt(sizes.d_k))
    out = recurrent.delta_net(q, k, v, gate, ops.unary(beta, "sigmoid"), il, tiled=not joint)
    out = ops.rms_norm(g.build_cb(out, "delta_net", il), g.weight(f"{blk}.ssm_norm.weight"), eps)
    gated = ops.glu(z, ops.reshape(out, sizes.n_v), "silu")
    return g.build_lora_mm(g.weight(f"{blk}.ssm_out.weight"), gated)


def _beta_alpha(g: GraphI, cur: Tensor, il: int, sizes: DeltaSizes, *, joint: bool) -> tuple[Tensor, Tensor]:
    """The learning rate's and the decay's logits of each value head: f32[n_tokens, n_head_v] each."""
    if not joint:
        alpha = g.build_lora_mm(g.weight(f"blk.{il}.ssm_alpha.weight"), cur)
        return g.build_lora_mm(g.weight(f"blk.{il}.ssm_beta.weight"), cur), alpha
    n = sizes.n_head_v // sizes.n_head_k
    both = ops.reshape(g.build_lora_mm(g.weight(f"blk.{il}.ssm_ba.weight"), cur), sizes.n_head_k, 2 * n)
    beta, alpha = (ops.reshape(ops.head_columns(both, first, n), sizes.n_head_v) for first in (0, n))
    return beta, alpha
