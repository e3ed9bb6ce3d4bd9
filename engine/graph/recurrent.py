"""Recurrences of the graph: operations that go over the tokens of each sequence and carry a state along.

Where the state of a layer lies is the memory's; an operation names its layer and which part it carries: "r", the short
memory (convolution inputs, shifted tokens), or "s", the state proper, from value `first` on.
"""

from __future__ import annotations

from engine.graph.tensor import Op, Symbol, Tensor


def _check(name: str, ok: bool, *tensors: Tensor) -> None:
    if not ok or any(t.shape[0] is not Symbol.N_TOKENS for t in tensors if t.op is not Op.WEIGHT):
        raise ValueError(f"{name}: shapes {[t.shape for t in tensors]}")


def _heads(name: str, x: Tensor) -> tuple[int, int]:
    """(n_head, d) of x f32[n_tokens, n_head, d]."""
    if len(x.shape) != 3 or not isinstance(x.shape[1], int) or not isinstance(x.shape[2], int):
        raise ValueError(f"{name}: {x.shape} has no heads")
    return x.shape[1], x.shape[2]


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, il: int, activation: str = "none", first: int = 0) -> Tensor:
    """A causal convolution of each channel with its last n_conv inputs, the newest last.

    Args:
        x: f32[n_tokens, n_channels].
        weight: f32[n_channels * n_conv]; bias: f32[n_channels].
        il: layer, whose short memory keeps n_channels * (n_conv - 1) values from `first` on.
        activation: "none" or "silu".
    """
    n_conv = weight.n_values // x.n_row
    _check("conv", n_conv >= 2 and weight.n_values == n_conv * x.n_row and activation in ("none", "silu"), x, weight)
    src = (x, weight) if bias is None else (x, weight, bias)
    return Tensor(Op.CONV, x.shape, src, {"il": il, "part": "r", "first": first, "activation": activation})


def token_shift(x: Tensor, il: int, first: int = 0) -> Tensor:
    """The row of the token before minus this one's: f32[n_tokens, n]; the first token has zeros before it."""
    _check("token_shift", True, x)
    return Tensor(Op.TOKEN_SHIFT, x.shape, (x,), {"il": il, "part": "r", "first": first})


def ssm_scan(x: Tensor, dt: Tensor, b: Tensor, c: Tensor, a: Tensor, d: Tensor, il: int) -> Tensor:
    """The selective scan h = exp(dt a) h + dt b x, y = c h + d x, with softplus on dt.

    Args:
        x: f32[n_tokens, n_head, d_head]; dt: f32[n_tokens, n_head].
        b, c: f32[n_tokens, n_group, d_state].
        a: f32[n_head], or f32[n_head * d_state]; d: f32[n_head].

    Source: arXiv:2312.00752, arXiv:2405.21060.
    """
    n_head, _ = _heads("ssm_scan", x)
    n_group, d_state = _heads("ssm_scan", b)
    ok = dt.n_row == n_head and b.shape == c.shape and n_head % n_group == 0 and d.n_values == n_head
    _check("ssm_scan", ok and a.n_values in (n_head, n_head * d_state), x, dt, b, c, a, d)
    return Tensor(Op.SSM_SCAN, x.shape, (x, dt, b, c, a, d), {"il": il, "part": "s", "first": 0})


def delta_net(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor, il: int, *, tiled: bool = False) -> Tensor:
    """The gated delta rule S = exp(gate) S; S = S + k (beta (v - k S)); o = q S.

    Args:
        q, k: f32[n_tokens, n_head_k, d_k].
        v: f32[n_tokens, n_head_v, d_v].
        gate, beta: f32[n_tokens, n_head_v].
        tiled: value head h belongs to key head h % n_head_k, else to h // (n_head_v / n_head_k).

    Source: arXiv:2412.06464.
    """
    n_head_k, _ = _heads("delta_net", q)
    n_head_v, _ = _heads("delta_net", v)
    ok = q.shape == k.shape and gate.n_row == beta.n_row == n_head_v and n_head_v % n_head_k == 0
    _check("delta_net", ok, q, k, v, gate, beta)
    attrs: dict[str, int | str] = {"il": il, "part": "s", "first": 0, "tiled": int(tiled)}
    return Tensor(Op.DELTA_NET, v.shape, (q, k, v, gate, beta), dict(attrs))


def wkv6(r: Tensor, k: Tensor, v: Tensor, w: Tensor, bonus: Tensor, il: int) -> Tensor:
    """RWKV-6's o = r (S + (bonus k) v); S = w S + k v, heads f32[n_tokens, n_head, d], bonus f32[n_head * d].

    Source: arXiv:2404.05892.
    """
    n_head, d = _heads("wkv6", r)
    _check("wkv6", r.shape == k.shape == v.shape == w.shape and bonus.n_values == n_head * d, r, k, v, w, bonus)
    return Tensor(Op.WKV6, v.shape, (r, k, v, w, bonus), {"il": il, "part": "s", "first": 0})


def wkv7(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, il: int) -> Tensor:
    """RWKV-7's S = S (diag(w) + a b) + v k; o = S r, heads f32[n_tokens, n_head, d]. Source: arXiv:2503.14456."""
    _heads("wkv7", r)
    _check("wkv7", r.shape == w.shape == k.shape == v.shape == a.shape == b.shape, r, w, k, v, a, b)
    return Tensor(Op.WKV7, v.shape, (r, w, k, v, a, b), {"il": il, "part": "s", "first": 0})
