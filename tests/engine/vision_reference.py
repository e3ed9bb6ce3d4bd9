"""Vision towers in numpy and float64, image by image, slow and obvious: row by row over the image, no blocks, no windows
cut out of the patches: a patch asks of every other whether it sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np

from engine.gguf import open_gguf, read_tensor
from engine.types import F64Array

ACTIVATIONS: dict[str, Callable[[F64Array], F64Array]] = {
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "quick": lambda x: x / (1 + np.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


class Reference:
    """One tower's file."""

    def __init__(self, path: Path) -> None:
        with open_gguf(path) as file:
            self.tensors = {name: read_tensor(path, name).astype(np.float64) for name in file.tensors}
            self.kind = file.get_str("clip.projector_type")
            self.patch = file.get_int("clip.vision.patch_size")
            self.n_head = file.get_int("clip.vision.attention.head_count")
            self.n_layer = file.get_int("clip.vision.block_count")
            self.eps = file.get_float("clip.vision.attention.layer_norm_epsilon")
            self.pattern = file.get_int("clip.vision.n_wa_pattern", 0)
            self.merge = file.get_int("clip.vision.projector.scale_factor", 2)
            self.mean, self.std = (file.get_floats(f"clip.vision.image_{what}") for what in ("mean", "std"))
            uses = {what: file.get_bool(f"clip.use_{what}", False) for what in ("gelu", "silu")}
        self.act = ACTIVATIONS[next((what for what, is_so in uses.items() if is_so), "quick")]

    def mm(self, name: str, x: F64Array) -> F64Array:
        return np.asarray(x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0))

    def norm(self, name: str, x: F64Array) -> F64Array:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        if bias is None:
            return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps) * weight)
        centred = x - x.mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.eps) * weight + bias)

    def encode(self, image: F64Array) -> F64Array:
        """An image from 0 to 1, of whole blocks: f64[height, width, 3] -> f64[n_rows, n_out]."""
        pixels, p = (image - self.mean) / self.std, self.patch
        n_down, n_across = image.shape[0] // p, image.shape[1] // p
        x = np.zeros((n_down * n_across, len(self.tensors["v.patch_embd.weight"])))
        for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
            if name in self.tensors:
                for i in range(len(x)):
                    row, column = divmod(i, n_across)
                    part = pixels[row * p : row * p + p, column * p : column * p + p]
                    x[i] += np.einsum("ocyx,yxc->o", self.tensors[name], part)
        x += self.tensors.get("v.patch_embd.bias", 0.0) + self.tensors.get("v.position_embd.weight", 0.0)
        row, column = np.divmod(np.arange(len(x)), n_across)
        for il in range(self.n_layer):
            blk = f"v.blk.{il}"
            x = x + self.attention(blk, self.norm(f"{blk}.ln1", x), row, column, il)
            h = self.norm(f"{blk}.ln2", x)
            up = self.mm(f"{blk}.ffn_up", h)
            hidden = self.act(self.mm(f"{blk}.ffn_gate", h)) * up if self.pattern else self.act(up)
            x = x + self.mm(f"{blk}.ffn_down", hidden)
        x = self.norm("v.post_ln", x).reshape(n_down, n_across, -1)
        m = self.merge
        blocks = [
            np.concatenate([x[m * r + i, m * c + j] for i in range(m) for j in range(m)])
            for r in range(n_down // m)
            for c in range(n_across // m)
        ]
        if self.kind == "idefics3":
            return self.mm("mm.model.fc", np.stack(blocks))
        h = self.mm("mm.0", np.stack(blocks))
        return self.mm("mm.2", 0.5 * h * (1 + np.vectorize(erf)(h / np.sqrt(2))))

    def attention(self, blk: str, x: F64Array, row: F64Array, column: F64Array, il: int) -> F64Array:
        n, d = x.shape[0], x.shape[1] // self.n_head
        q, k, v = (self.mm(f"{blk}.attn_{part}", x).reshape(n, self.n_head, d) for part in "qkv")
        if self.kind != "idefics3":
            freq = 10000.0 ** (-np.arange(d // 4) / (d // 4))
            angle = np.concatenate([row[:, None] * freq, column[:, None] * freq], 1)[:, None]
            q, k = (
                np.concatenate(
                    [
                        t[..., : d // 2] * np.cos(angle) - t[..., d // 2 :] * np.sin(angle),
                        t[..., d // 2 :] * np.cos(angle) + t[..., : d // 2] * np.sin(angle),
                    ],
                    -1,
                )
                for t in (q, k)
            )
        score = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d)
        if self.pattern and (il + 1) % self.pattern:
            side = 112 // self.patch // self.merge * self.merge
            window = row // side * 10_000 + column // side
            score = np.where(window[:, None] == window[None], score, -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        return self.mm(f"{blk}.attn_out", np.einsum("hqk,khd->qhd", weight, v).reshape(n, -1))
