"""The gated short convolution of LFM2. Source: arXiv:2511.23404."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.graph import ops, recurrent

if TYPE_CHECKING:
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


def short_conv_tensors(il: int, n_conv: int, n_embd: int) -> Iterator[TensorSpec]:
    """The tensors that `build_short_conv` reads."""
    blk = f"blk.{il}.shortconv"
    yield TensorSpec(f"{blk}.in_proj.weight", (3 * n_embd, n_embd))
    yield TensorSpec(f"{blk}.conv.weight", (n_embd, n_conv), flat=True)
    yield TensorSpec(f"{blk}.out_proj.weight", (n_embd, n_embd))


def build_short_conv(g: GraphI, cur: Tensor, il: int) -> Tensor:
    """c * conv(b * x) between two projections: f32[n_tokens, n_embd], normed -> f32[n_tokens, n_embd]."""
    blk, n_embd = f"blk.{il}.shortconv", cur.n_row
    bcx = g.build_lora_mm(g.weight(f"{blk}.in_proj.weight"), cur)
    b, c, x = (ops.columns(bcx, i * n_embd, n_embd) for i in range(3))
    mixed = g.build_cb(recurrent.conv(ops.mul(b, x), g.weight(f"{blk}.conv.weight"), None, il), "short_conv", il)
    return g.build_lora_mm(g.weight(f"{blk}.out_proj.weight"), ops.mul(mixed, c))
