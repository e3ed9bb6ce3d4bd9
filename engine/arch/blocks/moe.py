"""Mixture-of-experts feed-forward: a router picks experts for each token, their outputs are added up by weight.

Source: arXiv:2401.04088 (softmax over the chosen), arXiv:2412.19437 (sigmoid, selection bias, groups).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.graph import ops

if TYPE_CHECKING:
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor

LEAST_WEIGHT_SUM = 6.103515625e-5  # the smallest normal half float: the field's guard against division by zero


def build_moe_ffn(
    g: GraphI,
    cur: Tensor,
    il: int,
    *,
    n_expert_used: int,
    logits: Tensor | None = None,
    activation: str = "silu",
    gating: str = "softmax",
    norm_weights: bool = True,
    weight_scale: float = 1.0,
    n_group: int = 1,
    n_group_used: int = 1,
) -> Tensor:
    """The experts' part of a layer's feed-forward.

    Args:
        g: the graph.
        cur: f32[rows, n_embd], normed.
        il: layer; its tensors are blk.{il}.ffn_gate_inp, ffn_{gate,up,down}_exps or ffn_{gate_up,down}_exps and, where
            the file has them, exp_probs_b (added for the selection only) and ffn_down_exps.scale (on each expert's
            output).
        n_expert_used: experts per token.
        logits: the router's, f32[rows, n_expert], where they are not simply those of `cur`.
        activation: of the gate, or of `up` where there is no gate.
        gating: "softmax" or "sigmoid" over all experts, or "softmax_weight": over the chosen ones' logits.
        norm_weights: the chosen weights are divided by their sum.
        weight_scale: factor on the weights.
        n_group, n_group_used: experts are chosen from the best groups only.
    """
    if logits is None:
        router = g.weight(f"blk.{il}.ffn_gate_inp.weight")
        logits = g.build_lora_mm(router, cur, g.weight_or_none(f"blk.{il}.ffn_gate_inp.bias"))
    g.build_cb(logits, "ffn_moe_logits", il)
    probs = logits
    if gating == "softmax":
        probs = ops.softmax(logits)
    elif gating == "sigmoid":
        probs = ops.unary(logits, "sigmoid")
    bias = g.weight_or_none(f"blk.{il}.exp_probs_b.bias")
    ids = ops.top_k(probs if bias is None else ops.add(probs, bias), n_expert_used, n_group, n_group_used)
    weights = ops.pick(probs, ids)
    if gating == "softmax_weight":
        weights = ops.softmax(weights)
    if norm_weights:
        weights = ops.div_sum(weights, LEAST_WEIGHT_SUM)
    weights = ops.scale(weights, weight_scale)
    names = [f"blk.{il}.ffn_{part}_exps" for part in ("gate", "up", "down")]
    scale = g.weight_or_none(f"{names[2]}.scale")
    if scale is not None:
        weights = ops.mul(weights, ops.pick(scale, ids))
    g.build_cb(weights, "ffn_moe_weights", il)
    gate, down = g.weight_or_none(f"{names[0]}.weight"), g.weight(f"{names[2]}.weight")
    up = g.weight_or_none(f"blk.{il}.ffn_gate_up_exps.weight") or g.weight(f"{names[1]}.weight")
    found = [g.weight_or_none(f"{name}.bias") for name in (names if gate is not None else names[1:])]
    biases = tuple(b for b in found if b is not None)
    return g.build_cb(ops.moe(cur, ids, weights, gate, up, down, activation, biases), "ffn_moe_out", il)


def moe_tensors(il: int, n_expert: int, n_embd: int, n_ff: int, *, fused: bool = False) -> Iterator[TensorSpec]:
    """The tensors that `build_moe_ffn` reads, gate and up in one if `fused`; what a file may lack is not required."""
    yield TensorSpec(f"blk.{il}.ffn_gate_inp.weight", (n_expert, n_embd))
    yield TensorSpec(f"blk.{il}.ffn_gate_inp.bias", (n_expert,), required=False)
    yield TensorSpec(f"blk.{il}.exp_probs_b.bias", (n_expert,), required=False)
    yield TensorSpec(f"blk.{il}.ffn_down_exps.scale", (n_expert,), required=False)
    first = (
        [("gate_up", 2 * n_ff, n_embd, True)] if fused else [("gate", n_ff, n_embd, False), ("up", n_ff, n_embd, True)]
    )
    for part, n_out, n_in, required in (*first, ("down", n_embd, n_ff, True)):
        yield TensorSpec(f"blk.{il}.ffn_{part}_exps.weight", (n_expert, n_out, n_in), required)
        yield TensorSpec(f"blk.{il}.ffn_{part}_exps.bias", (n_expert, n_out), required=False)
