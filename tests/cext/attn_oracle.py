"""Attention in numpy float64, one query at a time, and random paged caches to run it on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cext import kernel_rows as rows
from cext.kernel_attn import Attention

F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]

RUN = np.dtype([("page", "<u8")] + [(name, "<i4") for name in ("first", "count", "pos0", "step", "delta", "reserved")])
PAGE_CELLS = 64
SWA_STANDARD, SWA_CHUNKED, SWA_SYMMETRIC = 1, 2, 3


def is_seen(params: dict[str, Any], pos: int, cell_pos: int) -> bool:
    """Whether a token at `pos` sees a cell at `cell_pos`."""
    kind, n_swa = int(params.get("swa_kind", 0)), int(params.get("n_swa", 0))
    if params.get("causal", True) and cell_pos > pos:
        return False
    if kind == SWA_STANDARD:
        return pos - cell_pos < n_swa
    if kind == SWA_CHUNKED:
        return cell_pos >= pos // n_swa * n_swa
    if kind == SWA_SYMMETRIC:
        return abs(pos - cell_pos) <= n_swa // 2
    return True


def alibi_slope(max_bias: float, n_head: int, head: int) -> float:
    n = 2 ** int(np.floor(np.log2(n_head)))
    if head < n:
        return float(2.0 ** (-max_bias / n * (head + 1)))
    return float(2.0 ** (-max_bias / 2 / n * (2 * (head - n) + 1)))


@dataclass
class Sequence:
    """Cells of one sequence in position order, as the kernels and as the reference see them."""

    pos: list[int] = field(default_factory=list)
    k: list[F64Array] = field(default_factory=list)  # [n_head_kv, d_k] each, at its own position
    v: list[F64Array] = field(default_factory=list)
    runs: list[tuple[int, ...]] = field(default_factory=list)


class Cache:
    """Pages with random contents in all cells that no run names: NaN for float types.

    Args:
        params: AttnParams' fields, without the offsets.
        seed: of all random numbers.
    """

    def __init__(self, params: dict[str, Any], seed: int = 0, n_pages: int = 40) -> None:
        self.rng = np.random.default_rng(seed)
        n_kv, d_k, d_v = params["n_head_kv"], params["d_k"], params["d_v"]
        self.k_bytes = rows.kv_row_bytes(params["type_k"], d_k)
        self.v_bytes = rows.kv_row_bytes(params["type_v"], d_v)
        k_off = 128
        self.v_step = self.v_bytes
        v_off = (k_off + n_kv * PAGE_CELLS * self.k_bytes + 63) // 64 * 64 + 64
        page_bytes = (v_off + n_kv * PAGE_CELLS * self.v_bytes + 63) // 64 * 64
        if params.get("v_in_k"):  # its last values
            v_off, self.v_step = k_off + rows.kv_row_bytes(params["type_k"], d_k - d_v), self.k_bytes
        self.params = {**params, "k_off": k_off, "v_off": v_off}
        self.memory = np.full(n_pages * page_bytes + 64, 0xFF, np.uint8)
        start = -self.memory.ctypes.data % 64
        self.pages = self.memory[start : start + n_pages * page_bytes].reshape(n_pages, page_bytes)
        self.free = [(page, 0) for page in self.rng.permutation(n_pages)]

    def row(self, is_k: bool, page: int, head: int, cell: int) -> npt.NDArray[np.uint8]:
        off, n, step = self.params["v_off"], self.v_bytes, self.v_step
        if is_k:
            off, n, step = self.params["k_off"], self.k_bytes, self.k_bytes
        at = off + (head * PAGE_CELLS + cell) * step
        return self.pages[page, at : at + n]

    def take(self, n: int) -> tuple[int, int, int]:
        """(page, first cell, cells) of at most n free cells, from a random page that has some."""
        i = int(self.rng.integers(len(self.free)))
        page, used = self.free[i]
        first = used + int(self.rng.integers(3)) if used < PAGE_CELLS - 3 else used
        n = min(n, PAGE_CELLS - first)
        if first + n >= PAGE_CELLS:
            self.free.pop(i)
        else:
            self.free[i] = (page, first + n)
        return page, first, n

    def add(self, attention: Attention, seq: Sequence, pos0: int, n: int, step: int = 1, delta: int = 0) -> None:
        """n more cells at pos0, pos0 + step, ..., stored through the kernels; their K encoded `delta` before."""
        p = self.params
        while n > 0:
            page, first, count = self.take(min(n, int(self.rng.integers(1, PAGE_CELLS + 1))))
            k = self.rng.standard_normal((count, p["n_head_kv"] * p["d_k"])).astype(np.float32)
            v = self.rng.standard_normal((count, p["n_head_kv"] * p["d_v"])).astype(np.float32)
            cells = np.arange(first, first + count, dtype=np.int32)
            address = self.pages[page].ctypes.data
            attention.store(k, v, np.full(count, address, np.uint64), cells)
            for cell in range(first, first + count):
                heads = range(p["n_head_kv"])
                kd = [rows.kv_decode(p["type_k"], self.row(True, page, h, cell), p["d_k"]) for h in heads]
                vd = [rows.kv_decode(p["type_v"], self.row(False, page, h, cell), p["d_v"]) for h in heads]
                seq.k.append(np.array([rotate64(p, row, delta) for row in kd]))
                seq.v.append(np.array(vd, np.float64))
            seq.pos += [pos0 + i * step for i in range(count)]
            seq.runs.append((address, first, count, pos0, step, delta, 0))
            pos0, n = pos0 + count * step, n - count


def rotate64(params: dict[str, Any], x: F32Array, delta: int) -> F64Array:
    """x turned by delta positions with the layer's own frequencies, magnitude 1."""
    rope = params.get("rope")
    out = x.astype(np.float64)
    if not rope or delta == 0:
        return out
    n = rope["n_rot"]
    table = rows.rope_delta_table({"freq_base": 10000.0, **rope}, delta).astype(np.float64)
    c, s = table[: n // 2], table[n // 2 :]
    pairs = np.arange(n).reshape(2, -1) if rope["kind"] == 2 else np.arange(n).reshape(-1, 2).T
    a, b = out[pairs[0]].copy(), out[pairs[1]].copy()
    out[pairs[0]], out[pairs[1]] = a * c - b * s, b * c + a * s
    return out


def attend(
    params: dict[str, Any],
    seq: Sequence,
    q: F32Array,
    pos: npt.NDArray[np.int32],
    sinks: F32Array | None = None,
    rel_bias: F32Array | None = None,
) -> F64Array:
    """f64[n_tokens, n_head * d_v]; q f32[n_tokens, n_head * d_k]; rel_bias f32[n_head, 2 * rel_max + 1]."""
    n_head, n_kv, d_k, d_v = (params[name] for name in ("n_head", "n_head_kv", "d_k", "d_v"))
    out = np.zeros((len(pos), n_head, d_v))
    k_all, v_all, cell_pos = np.array(seq.k), np.array(seq.v), np.array(seq.pos)
    for t, at in enumerate(pos):
        seen = np.array([is_seen(params, int(at), int(c)) for c in cell_pos], bool)
        if not seen.any():
            continue
        for head in range(n_head):
            h = head // (n_head // n_kv)
            s = k_all[seen, h] @ q[t].reshape(n_head, d_k)[head].astype(np.float64) * params["scale"]
            if params.get("softcap"):
                s = params["softcap"] * np.tanh(s / params["softcap"])
            if params.get("max_alibi_bias"):
                s = s - alibi_slope(params["max_alibi_bias"], n_head, head) * np.abs(at - cell_pos[seen])
            if rel_bias is not None:
                rel_max = rel_bias.shape[1] // 2
                s = s + rel_bias[head].astype(np.float64)[np.clip(cell_pos[seen] - at, -rel_max, rel_max) + rel_max]
            top = s.max() if sinks is None else max(s.max(), sinks[head])
            e = np.exp(s - top)
            total = e.sum() + (0.0 if sinks is None else np.exp(sinks[head] - top))
            out[t, head] = e @ v_all[seen, h] / total
    return out.reshape(len(pos), -1)


def run_table(*sequences: Sequence) -> tuple[npt.NDArray[np.uint8], list[tuple[int, int]]]:
    """All runs as u8[n_runs, 32], and (run0, n_runs) of each sequence."""
    table = np.array([run for seq in sequences for run in seq.runs], RUN).reshape(-1)
    places, at = [], 0
    for seq in sequences:
        places.append((at, len(seq.runs)))
        at += len(seq.runs)
    return table.view(np.uint8).reshape(-1, 32), places
