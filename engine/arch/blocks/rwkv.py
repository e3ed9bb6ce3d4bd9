"""Time and channel mixing of RWKV-6 and RWKV-7. Source: arXiv:2404.05892, arXiv:2503.14456.

The short memory of a layer holds the last input of the time mix, then that of the channel mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.graph import ops, recurrent
from engine.memory.base import LayerState

if TYPE_CHECKING:
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor

GROUP_NORM_EPS = 64e-5
DECAY_SCALE = -0.606531  # -exp(-1/2)
KEY_NORM_EPS = 1e-24

Rows = Callable[["Tensor"], "Tensor"]
"""What goes on of all tokens' rows: `GraphI.build_out` in the last layer."""


def rwkv_state(il: int, n_embd: int, d_head: int) -> LayerState:
    """What a layer carries along."""
    return LayerState(il, 2 * n_embd, n_embd * d_head)


def build_rwkv_token_shift(g: GraphI, cur: Tensor, il: int, *, channel_mix: bool = False) -> Tensor:
    """The last token's row minus this one's: f32[n_tokens, n_embd]."""
    return g.build_cb(recurrent.token_shift(cur, il, cur.n_row if channel_mix else 0), "token_shift", il)


def _heads_norm(g: GraphI, cur: Tensor, il: int) -> Tensor:
    """A norm over each head f32[n_tokens, n_head, d], with weights for all: f32[n_tokens, n_embd]."""
    cur = ops.reshape(ops.layer_norm(cur, None, None, GROUP_NORM_EPS), cur.n_row)
    return ops.add(ops.mul(cur, g.weight(f"blk.{il}.time_mix_ln.weight")), g.weight(f"blk.{il}.time_mix_ln.bias"))


def rwkv6_tensors(il: int, n_embd: int, n_ff: int, d_head: int, n_mix: int, n_decay: int) -> Iterator[TensorSpec]:
    """The tensors of RWKV-6's two mixes; n_mix and n_decay are the widths of the low-rank parts."""
    mix = f"blk.{il}.time_mix"
    yield TensorSpec(f"{mix}_lerp_x.weight", (n_embd,))
    yield TensorSpec(f"{mix}_lerp_fused.weight", (5, n_embd))
    yield TensorSpec(f"{mix}_w1.weight", (5 * n_mix, n_embd))
    yield TensorSpec(f"{mix}_w2.weight", (5, n_embd, n_mix))
    yield TensorSpec(f"{mix}_decay.weight", (n_embd,))
    yield TensorSpec(f"{mix}_decay_w1.weight", (n_decay, n_embd))
    yield TensorSpec(f"{mix}_decay_w2.weight", (n_embd, n_decay))
    yield TensorSpec(f"{mix}_first.weight", (n_embd // d_head, d_head), flat=True)
    for part in ("receptance", "key", "value", "gate", "output"):
        yield TensorSpec(f"{mix}_{part}.weight", (n_embd, n_embd))
    yield TensorSpec(f"{mix}_ln.weight", (n_embd,))
    yield TensorSpec(f"{mix}_ln.bias", (n_embd,))
    channel = f"blk.{il}.channel_mix"
    yield TensorSpec(f"{channel}_lerp_k.weight", (n_embd,))
    yield TensorSpec(f"{channel}_lerp_r.weight", (n_embd,))
    yield TensorSpec(f"{channel}_key.weight", (n_ff, n_embd))
    yield TensorSpec(f"{channel}_value.weight", (n_embd, n_ff))
    yield TensorSpec(f"{channel}_receptance.weight", (n_embd, n_embd))


def build_rwkv6_time_mix(g: GraphI, cur: Tensor, il: int, d_head: int) -> Tensor:
    """RWKV-6's time mix: f32[n_tokens, n_embd], normed -> f32[n_tokens, n_embd]."""
    mix, n_embd = f"blk.{il}.time_mix", cur.n_row
    n_head = n_embd // d_head
    change = build_rwkv_token_shift(g, cur, il)
    low = ops.add(ops.mul(change, g.weight(f"{mix}_lerp_x.weight")), cur)
    low = ops.unary(g.build_lora_mm(g.weight(f"{mix}_w1.weight"), low), "tanh")
    shares = ops.mul_mat_heads(g.weight(f"{mix}_w2.weight"), ops.reshape(low, 5, low.n_row // 5))

    def mixed(i: int) -> Tensor:
        share = ops.add(ops.columns(shares, i * n_embd, n_embd), g.weight_row(f"{mix}_lerp_fused.weight", i))
        return ops.add(ops.mul(share, change), cur)

    def projected(part: str, i: int) -> Tensor:
        return g.build_lora_mm(g.weight(f"{mix}_{part}.weight"), mixed(i))

    w = ops.unary(g.build_lora_mm(g.weight(f"{mix}_decay_w1.weight"), mixed(0)), "tanh")
    w = ops.add(g.build_lora_mm(g.weight(f"{mix}_decay_w2.weight"), w), g.weight(f"{mix}_decay.weight"))
    w = ops.unary(ops.scale(ops.unary(w, "exp"), -1.0), "exp")
    k, v, r = (projected(part, i) for part, i in (("key", 1), ("value", 2), ("receptance", 3)))
    gate = projected("gate", 4)
    r, k, v, w = (ops.reshape(x, n_head, d_head) for x in (r, k, v, w))
    out = g.build_cb(recurrent.wkv6(r, k, v, w, g.weight(f"{mix}_first.weight"), il), "wkv", il)
    return g.build_lora_mm(g.weight(f"{mix}_output.weight"), ops.glu(gate, _heads_norm(g, out, il), "silu"))


def build_rwkv6_channel_mix(g: GraphI, cur: Tensor, il: int, rows: Rows) -> Tensor:
    """RWKV-6's channel mix: f32[n_tokens, n_embd], normed -> the rows that go on."""
    mix = f"blk.{il}.channel_mix"
    change = build_rwkv_token_shift(g, cur, il, channel_mix=True)
    change, cur = rows(change), rows(cur)
    xk, xr = (ops.add(ops.mul(change, g.weight(f"{mix}_lerp_{part}.weight")), cur) for part in "kr")
    hidden = ops.unary(g.build_lora_mm(g.weight(f"{mix}_key.weight"), xk), "relu_sqr")
    value = g.build_lora_mm(g.weight(f"{mix}_value.weight"), hidden)
    return ops.glu(g.build_lora_mm(g.weight(f"{mix}_receptance.weight"), xr), value, "sigmoid")


def rwkv7_tensors(il: int, n_embd: int, n_ff: int, ranks: dict[str, int], *, has_gate: bool) -> Iterator[TensorSpec]:
    """The tensors of RWKV-7's two mixes; ranks: widths of the low-rank parts w, a, v and g."""
    mix = f"blk.{il}.time_mix"
    yield TensorSpec(f"{mix}_lerp_fused.weight", (5 + has_gate, n_embd))
    for part in ("w", "a", "v", *("g" if has_gate else "")):
        required = part != "v" or il > 0  # the first layer's value mix is never used
        if part != "g":
            yield TensorSpec(f"{mix}_{part}0.weight", (n_embd,), required)
        if required:
            yield TensorSpec(f"{mix}_{part}1.weight", (ranks[part], n_embd))
            yield TensorSpec(f"{mix}_{part}2.weight", (n_embd, ranks[part]))
    for part in ("k_k", "k_a", "r_k"):
        yield TensorSpec(f"{mix}_{part}.weight", (n_embd,))
    for part in ("receptance", "key", "value", "output"):
        yield TensorSpec(f"{mix}_{part}.weight", (n_embd, n_embd))
    yield TensorSpec(f"{mix}_ln.weight", (n_embd,))
    yield TensorSpec(f"{mix}_ln.bias", (n_embd,))
    channel = f"blk.{il}.channel_mix"
    yield TensorSpec(f"{channel}_lerp_k.weight", (n_embd,))
    yield TensorSpec(f"{channel}_key.weight", (n_ff, n_embd))
    yield TensorSpec(f"{channel}_value.weight", (n_embd, n_ff))


def build_rwkv7_time_mix(
    g: GraphI, cur: Tensor, il: int, d_head: int, first_value: Tensor | None, *, has_gate: bool
) -> tuple[Tensor, Tensor]:
    """RWKV-7's time mix: f32[n_tokens, n_embd], normed -> (f32[n_tokens, n_embd], the first layer's values)."""
    mix, n_embd = f"blk.{il}.time_mix", cur.n_row
    n_head = n_embd // d_head
    change = build_rwkv_token_shift(g, cur, il)
    inputs = {
        part: ops.add(ops.mul(change, g.weight_row(f"{mix}_lerp_fused.weight", i)), cur)
        for i, part in enumerate("rwkva" + "g" * has_gate)
    }

    def low_rank(part: str, activation: str = "") -> Tensor:
        low = g.build_lora_mm(g.weight(f"{mix}_{part}1.weight"), inputs[part])
        low = ops.unary(low, activation) if activation else low
        return g.build_lora_mm(g.weight(f"{mix}_{part}2.weight"), low)

    r = g.build_lora_mm(g.weight(f"{mix}_receptance.weight"), inputs["r"])
    k = g.build_lora_mm(g.weight(f"{mix}_key.weight"), inputs["k"])
    v = g.build_lora_mm(g.weight(f"{mix}_value.weight"), inputs["v"])
    w = ops.unary(ops.add(low_rank("w", "tanh"), g.weight(f"{mix}_w0.weight")), "sigmoid")
    w = ops.unary(ops.scale(w, DECAY_SCALE), "exp")
    a = ops.unary(ops.add(low_rank("a"), g.weight(f"{mix}_a0.weight")), "sigmoid")
    if first_value is None:
        first_value = v
    else:
        share = ops.unary(ops.add(low_rank("v"), g.weight(f"{mix}_v0.weight")), "sigmoid")
        v = ops.add(v, ops.mul(ops.add(first_value, ops.scale(v, -1.0)), share))
    removal = ops.l2_norm(ops.reshape(ops.mul(k, g.weight(f"{mix}_k_k.weight")), n_head, d_head), KEY_NORM_EPS)
    scaled = ops.mul(k, g.weight(f"{mix}_k_a.weight"))
    k = ops.add(k, ops.add(ops.mul(a, scaled), ops.scale(scaled, -1.0)))
    r, w, k, values, a = (ops.reshape(x, n_head, d_head) for x in (r, w, k, v, a))
    out = recurrent.wkv7(r, w, k, values, ops.scale(removal, -1.0), ops.mul(removal, a), il)
    normed = _heads_norm(g, g.build_cb(out, "wkv", il), il)
    weighted = ops.mul(ops.reshape(ops.mul(r, k), n_embd), g.weight(f"{mix}_r_k.weight"))
    bonus = ops.mul_head_sum(values, ops.reshape(weighted, n_head, d_head))
    out = ops.add(normed, ops.reshape(bonus, n_embd))
    if has_gate:
        out = ops.mul(out, low_rank("g", "sigmoid"))
    return g.build_lora_mm(g.weight(f"{mix}_output.weight"), out), first_value


def build_rwkv7_channel_mix(g: GraphI, cur: Tensor, il: int, rows: Rows) -> Tensor:
    """RWKV-7's channel mix: f32[n_tokens, n_embd], normed -> the rows that go on."""
    mix = f"blk.{il}.channel_mix"
    change = build_rwkv_token_shift(g, cur, il, channel_mix=True)
    change, cur = rows(change), rows(cur)
    xk = ops.add(ops.mul(change, g.weight(f"{mix}_lerp_k.weight")), cur)
    hidden = ops.unary(g.build_lora_mm(g.weight(f"{mix}_key.weight"), xk), "relu_sqr")
    return g.build_lora_mm(g.weight(f"{mix}_value.weight"), hidden)
