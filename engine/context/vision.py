"""`ContextVision`: from an image to rows that a language model takes in place of tokens.

An encode stands alone: patches attend to each other through cells of one layer's size, which all layers share, for a
layer's keys and values are read only before the next one's are written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cext.executor import Program
from engine.backend.cpu.lower import Lowering
from engine.backend.cpu.stages import N_ROPE_AXES, CacheLayout
from engine.context.builder import GraphBuilder, Topology
from engine.context.computing import ComputeMixin
from engine.context.core import Context
from engine.errors import HparamError, UnsupportedCallError
from engine.graph.interface import GraphType
from engine.graph.result import GraphResult
from engine.graph.tensor import WeightInfo
from engine.image import Image, Patches, as_float, cut, normalised, resized, window_order
from engine.memory.base import KVPlacement, LayerKV, MemoryParams
from engine.memory.cells import SEGMENT_DTYPE, Cells, cells_of_ranges, from_cells
from engine.memory.kv import make_stores
from engine.types import F32Array, I32Array, I64Array, QuantType
from engine.vision_model import VisionModel

if TYPE_CHECKING:
    from engine.arch.vision.base import VisionArch
    from engine.model import Model


class ContextVision(ComputeMixin):
    """Computes a vision tower.

    Args:
        model: the tower's file; must stay open as long as the context is used.
        n_threads: threads to compute with.

    Thread: one at a time; `abort_flag` from any.
    """

    def __init__(self, model: VisionModel, n_threads: int) -> None:
        super().__init__(n_threads, n_threads, model.load_ms)
        self._model, self._arch = model, model.arch
        hp = self._arch.hparams
        layer = LayerKV(0, hp.n_head, hp.n_embd_head, hp.n_embd_head)
        params = MemoryParams(n_ctx=1, type_k=QuantType.F32, type_v=QuantType.F32)
        (self._store,) = make_stores(params, [(layer,)])
        self._plan: Program | None = None
        self._n_patches_max = 0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What other contexts have and this one, which keeps nothing, has not. Raises: UnsupportedCallError."""
            if not name.startswith("_") and hasattr(Context, name):
                raise UnsupportedCallError(name, "ContextVision: it encodes images and keeps nothing")
            raise AttributeError(name)

    def get_model(self) -> VisionModel:
        """The tower's file."""
        return self._model

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of what `encode` gives for an image of that size: n_image_tokens is their product."""
        size = self._arch.hparams.block_size
        fitted = self._arch.fitted(height, width)
        return fitted[0] // size, fitted[1] // size

    def positions(self, height: int, width: int, pos: int) -> I32Array:
        """The positions of an image's rows in a language model, for `Batch.from_embeddings`.

        Args:
            height, width: of the image.
            pos: where it begins.

        Returns: i32[n_image_tokens], one behind the other; or i32[3, n_image_tokens], by time, row and column.
        """
        n_rows, n_columns = self.grid(height, width)
        if self._arch.n_axes == 1:
            return np.arange(pos, pos + n_rows * n_columns, dtype=np.int32)
        row, column = np.divmod(np.arange(n_rows * n_columns, dtype=np.int32), np.int32(n_columns))
        return np.stack([np.zeros_like(row), row, column]) + np.int32(pos)

    def encode(self, image: Image) -> F32Array:
        """Compute an image, resized to what the tower takes.

        Args:
            image: uint8[height, width, 3] from 0 to 255, or f32[height, width, 3] from 0 to 1.

        Returns: f32[n_image_tokens, n_embd], row by row over the `grid`; no rows where the abort flag or callback
            stopped it.
        Raises: ParamError: no such image; OutOfMemoryError; KernelStatusError: values that are not finite.
        """
        hp = self._arch.hparams
        pixels = as_float(image)
        pixels = resized(pixels, *self._arch.fitted(*pixels.shape[:2]))
        patches = cut(normalised(pixels, hp.image_mean, hp.image_std), hp.patch_size, hp.n_merge)
        blocks, windows = window_order(patches.grid, self._arch.n_window or max(patches.grid))
        began = time.perf_counter()
        rows = self._compute(_in_blocks(patches, blocks, hp.n_merge**2), windows * hp.n_merge**2)
        if not len(rows):
            return rows
        self._perf.add_decode(len(patches.values), 1000 * (time.perf_counter() - began))
        out = np.empty_like(rows)
        out[blocks] = rows
        return out

    def _compute(self, patches: Patches, windows: I64Array) -> F32Array:
        """Rows of patches that stand window by window, in the same order: f32[n_blocks, n_out]."""
        hp, n = self._arch.hparams, len(patches.values)
        plan = self._plan_for(n)
        out = np.empty((n // hp.n_merge**2, hp.n_out), np.float32)
        place = patches.row * (hp.image_size // hp.patch_size) + patches.column
        axes = np.zeros((n, N_ROPE_AXES), np.int32)
        axes[:, 0], axes[:, 1] = patches.row, patches.column
        self._store.begin()
        try:
            cells = cells_of_ranges(self._store.take(n), np.arange(n, dtype=np.int32), 0)
            self._binding.bind(
                n, len(out), None, patches.values, hp.n_patch, place, axes, np.zeros(len(out), np.int32), None, 0, 0, out,
                hp.n_out,
            )  # fmt: skip
            for i, sizes in enumerate((np.array([n]), windows)):
                where = _placed(cells, sizes)
                self._binding.bind_cache(i, where.pages, where.cells, where.runs, where.segments, len(sizes))
            if not self._run_bound(plan, n, "encode"):
                return out[:0]
            if not np.isfinite(out).all():
                self._raise_not_finite(plan, n, "encode")
        finally:
            self._binding.release()
            self._store.rollback()
        return out

    def _plan_for(self, n_patches: int) -> Program:
        """The compiled program, made anew for an image that is larger than all before."""
        if self._plan is None or n_patches > self._n_patches_max:
            layout = self._store.layout
            where = CacheLayout(layout.k_off(0), layout.v_off(0), layout.type_k, layout.type_v)
            graph = build_vision_graph(self._arch, self._model.weight_infos)
            lowering = Lowering(graph, self._model.weight, lambda cache, il: where, n_patches, n_patches)
            self._plan, self._n_patches_max = lowering.lower(), n_patches
        self._reserve(self._plan)
        return self._plan

    def close(self) -> None:
        """Let go of the buffers and of the tower's file."""
        self._plan = None
        self._release()
        self._model.close()


def build_vision_graph(arch: VisionArch, weight_infos: Mapping[str, WeightInfo]) -> GraphResult:
    """The graph of a tower; what looks through windows has its cells in the second cache."""
    topology = Topology(GraphType.ENCODER, embd_input=True, want_embd=True, want_logits=False, causal=False)
    builder = GraphBuilder(
        weight_infos,
        arch.hparams.n_patch,
        topology,
        lambda il: int(arch.is_windowed(il)),
        "ContextVision",
        lambda il: "",
    )
    return arch.build(builder)


def _in_blocks(patches: Patches, blocks: I64Array, n: int) -> Patches:
    """The patches with their blocks, n patches each, in another order."""
    index = (blocks[:, None] * n + np.arange(n)).reshape(-1)
    return Patches(np.ascontiguousarray(patches.values[index]), patches.row[index], patches.column[index], patches.grid)


def _placed(cells: Cells, sizes: I64Array) -> KVPlacement:
    """Cells of which each sizes[i] that follow each other see one another."""
    ends = np.cumsum(sizes)
    tables = [from_cells(cells.take(slice(int(end - n), int(end))), 0) for n, end in zip(sizes, ends, strict=True)]
    segments = np.empty(len(sizes), SEGMENT_DTYPE)
    n_runs = np.array([table.n_runs for table in tables])
    segments["t0"], segments["n_tokens"] = ends - sizes, sizes
    segments["run0"], segments["n_runs"] = np.cumsum(n_runs) - n_runs, n_runs
    return KVPlacement(cells.page, cells.cell, cells.pos, np.concatenate([table.runs for table in tables]), segments)


def load_vision(model: Model, path: str | Path) -> ContextVision:
    """Open the vision tower that belongs to a language model.

    Args:
        model: whose embeddings the tower's rows take the place of.
        path: its mmproj file.

    Raises:
        ModelFileError: a damaged file, one without a vision tower, or one for another model's width.
        UnsupportedArchitectureError: a projector that is not known.
        OutOfMemoryError: weights that do not fit.
    """
    tower = VisionModel(path, model.n_threads)
    n_out, n_embd = tower.arch.hparams.n_out, model.hparams.n_embd
    if n_out != n_embd:
        tower.close()
        reason = f"rows of {n_out} values do not fit a model with embeddings of {n_embd}"
        raise HparamError("clip.vision.projection_dim", reason, path)
    return ContextVision(tower, model.n_threads)
