"""The llama architecture in numpy and float64: slow, obvious, and free to do what a scenario asks for.

Keys are kept unrotated beside the position of each cell, so a cell is moved by writing another number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import engine
from engine.gguf import open_gguf
from engine.types import F64Array


class NumpyLlama:
    """One sequence of a llama.

    Attributes:
        pos: the position of each cell.
        inputs: f64[n_tokens, n_in] by weight: what each product of the last decode multiplied.
        l_out: f64[n_tokens, n_embd] of each layer of the last decode.
        embd: f64[n_tokens, n_embd], the final hidden rows of the last decode.
    """

    def __init__(self, path: Path) -> None:
        with open_gguf(path) as gguf:
            self.n_layer = gguf.get_int("llama.block_count")
            self.n_head = gguf.get_int("llama.attention.head_count")
            self.n_head_kv = gguf.get_int("llama.attention.head_count_kv")
            self.eps = gguf.get_float("llama.attention.layer_norm_rms_epsilon")
            self.freq_base = gguf.get_float("llama.rope.freq_base", 10000.0)
            names = list(gguf.tensors)
        self._w = {name: engine.read_tensor(path, name).astype(np.float64) for name in names}
        self.clear()

    def clear(self) -> None:
        """Forget every cell."""
        self.pos: list[int] = []
        self._k: list[list[F64Array]] = [[] for _ in range(self.n_layer)]
        self._v: list[list[F64Array]] = [[] for _ in range(self.n_layer)]
        self.inputs: dict[str, F64Array] = {}
        self.l_out: list[F64Array] = []

    def decode(
        self,
        tokens: Sequence[int],
        pos: Sequence[int] | None = None,
        *,
        causal: bool = True,
        directions: Mapping[int, F64Array] | None = None,
    ) -> F64Array:
        """Logits f64[n_tokens, n_vocab] of tokens that go on at pos; directions are added to layers' outputs."""
        n, n_past = len(tokens), len(self.pos)
        self.pos += list(range(n_past, n_past + n) if pos is None else pos)
        self.inputs, self.l_out = {}, []
        seen = np.arange(n_past + n)[None, :] <= (np.arange(n_past, n_past + n)[:, None] if causal else n_past + n)
        x: F64Array = self._w["token_embd.weight"][list(tokens)]
        for il in range(self.n_layer):
            blk = f"blk.{il}"
            x = x + self._mul(f"{blk}.attn_output", self._attend(il, self._norm(f"{blk}.attn_norm", x), seen))
            cur = self._norm(f"{blk}.ffn_norm", x)
            gate = self._mul(f"{blk}.ffn_gate", cur)
            x = x + self._mul(f"{blk}.ffn_down", gate / (1 + np.exp(-gate)) * self._mul(f"{blk}.ffn_up", cur))
            x = x + directions[il] if directions is not None and il in directions else x
            self.l_out.append(x)
        self.embd = self._norm("output_norm", x)
        return self._mul("output", self.embd)

    def greedy(self, tokens: Sequence[int], n: int, directions: Mapping[int, F64Array] | None = None) -> list[int]:
        """The next n tokens after tokens, each the likeliest."""
        made: list[int] = []
        logits = self.decode(tokens, directions=directions)[-1]
        for _ in range(n):
            made.append(int(logits.argmax()))
            logits = self.decode(made[-1:], [self.pos[-1] + 1], directions=directions)[-1]
        return made

    def _attend(self, il: int, cur: F64Array, seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> F64Array:
        n = len(cur)
        q, k, v = (self._mul(f"blk.{il}.attn_{part}", cur).reshape(n, -1, self._d) for part in "qkv")
        self._k[il].extend(k)
        self._v[il].extend(v)
        pos = np.array(self.pos)
        q = self._rotate(q, pos[-n:])
        keys = self._rotate(np.stack(self._k[il]), pos).repeat(self.n_head // self.n_head_kv, axis=1)
        values = np.stack(self._v[il]).repeat(self.n_head // self.n_head_kv, axis=1)
        scores = np.einsum("thd,shd->hts", q, keys) / np.sqrt(self._d)
        scores = np.exp(np.where(seen, scores - scores.max(axis=-1, keepdims=True), -np.inf))
        mixed = np.einsum("hts,shd->thd", scores / scores.sum(axis=-1, keepdims=True), values)
        return np.asarray(mixed.reshape(n, -1), np.float64)

    @property
    def _d(self) -> int:
        return len(self._w["blk.0.attn_q.weight"]) // self.n_head

    def _rotate(self, x: F64Array, pos: np.ndarray[tuple[int], np.dtype[np.int64]]) -> F64Array:
        """Pairs (2i, 2i + 1) by pos * freq_base^(-2i / d). Source: arXiv:2104.09864 3.4."""
        angle = pos[:, None] * self.freq_base ** (-np.arange(0, self._d, 2) / self._d)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None, :]
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def _norm(self, name: str, x: F64Array) -> F64Array:
        rms = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps)
        return np.asarray(x / rms * self._w[f"{name}.weight"], np.float64)

    def _mul(self, name: str, x: F64Array) -> F64Array:
        self.inputs[f"{name}.weight"] = x
        return np.asarray(x @ self._w[f"{name}.weight"].T, np.float64)
