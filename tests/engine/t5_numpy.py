"""T5 in numpy float64: slow, obvious, a whole source and a whole answer at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.types import F32Array, F64Array

N_HEAD, EPS = 4, 1e-6


def norm(x: F64Array, weight: F32Array) -> F64Array:
    normed: F64Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPS) * weight
    return normed


def bucket(distance: int, n_buckets: int, has_later: bool) -> int:
    """The bucket of a cell `distance` positions behind the token."""
    first = 0
    if has_later:
        n_buckets //= 2
        first = n_buckets if distance > 0 else 0
        distance = -abs(distance)
    far, half = max(-distance, 0), n_buckets // 2
    if far < half:
        return first + far
    return first + min(n_buckets - 1, half + int(np.log(far / half) / np.log(128 / half) * (n_buckets - half)))


class NumpyT5:
    """The model of a file's weights by name."""

    def __init__(self, weights: Mapping[str, F32Array], n_enc: int, n_dec: int) -> None:
        self._w, self._n_enc, self._n_dec = weights, n_enc, n_dec
        self._gated = "enc.blk.0.ffn_gate.weight" in weights

    def mm(self, x: F64Array, name: str) -> F64Array:
        return x @ self._w[f"{name}.weight"].T.astype(np.float64)

    def attend(self, name: str, x: F64Array, seen: F64Array, bias: F64Array | float, is_causal: bool) -> F64Array:
        """x f64[n, 64] and what it sees f64[m, 64] -> f64[n, 64]."""
        q, k, v = (
            self.mm(y, f"{name}_{part}").reshape(len(y), N_HEAD, -1)
            for part, y in zip("qkv", (x, seen, seen), strict=True)
        )
        score = np.einsum("thd,uhd->htu", q, k) + bias
        if is_causal:
            score[:, np.triu(np.ones(score.shape[1:], bool), 1)] = -np.inf
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        return self.mm(np.einsum("htu,uhd->thd", weight, v).reshape(len(x), -1), f"{name}_o")

    def layer(self, x: F64Array, blk: str, bias: F64Array, source: F64Array | None) -> F64Array:
        h = norm(x, self._w[f"{blk}.attn_norm.weight"])
        x = x + self.attend(f"{blk}.attn", h, h, bias, source is not None)
        if source is not None:
            h = norm(x, self._w[f"{blk}.cross_attn_norm.weight"])
            x = x + self.attend(f"{blk}.cross_attn", h, source, 0.0, False)
        h = norm(x, self._w[f"{blk}.ffn_norm.weight"])
        up = self.mm(h, f"{blk}.ffn_up")
        if self._gated:
            gate = self.mm(h, f"{blk}.ffn_gate")
            up = up * 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            up = np.maximum(up, 0)
        return x + self.mm(up, f"{blk}.ffn_down")

    def bias(self, side: str, n: int) -> F64Array:
        """f64[n_head, n, n], as the first layer has it."""
        table = self._w[f"{side}.blk.0.attn_rel_b.weight"].astype(np.float64)
        by_distance = np.array([table[bucket(d, len(table), side == "enc")] for d in range(1 - n, n)])
        distance = np.arange(n)[None, :] - np.arange(n)[:, None]
        bias: F64Array = by_distance[distance + n - 1].transpose(2, 0, 1)
        return bias

    def encode(self, source: Sequence[int]) -> F64Array:
        """The encoder's hidden rows f64[n, 64]."""
        x, bias = self._w["token_embd.weight"][list(source)].astype(np.float64), self.bias("enc", len(source))
        for il in range(self._n_enc):
            x = self.layer(x, f"enc.blk.{il}", bias, None)
        return norm(x, self._w["enc.output_norm.weight"])

    def decode(self, tokens: Sequence[int], source: F64Array) -> F64Array:
        """The logits behind every token f64[n, n_vocab]."""
        embd = self._w["token_embd.weight"].astype(np.float64)
        x, bias = embd[list(tokens)], self.bias("dec", len(tokens))
        for il in range(self._n_dec):
            x = self.layer(x, f"dec.blk.{il}", bias, source)
        x = norm(x, self._w["dec.output_norm.weight"])
        return (x if self._gated else x * x.shape[1] ** -0.5) @ embd.T
