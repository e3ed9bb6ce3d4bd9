"""Weights in memory: matrices packed into row panels, vectors as f32, the rest as it lies in the file.

Stands between the GGUF reader and the graph's weights. Everything the architecture names is checked against the file
before any memory is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cext.threadpool import ThreadPool
from cext.weights import LargeBuffer, PackedWeight, weight_bytes
from engine.backend.cpu.stages import MappedWeight, Weight
from engine.errors import OutOfMemoryError, TensorMissingError, TensorShapeError, UnsupportedQuantError
from engine.gguf import dequantize
from engine.types import F32Array

if TYPE_CHECKING:
    from engine.arch.base import TensorSpec
    from engine.gguf import GGUFFile, TensorInfo

STRIP_BYTES = 16 << 20  # of the file, packed before its pages are let go

Progress = Callable[[float], None]
"""Called with the share done, 0 to 1."""


def check_tensors(gguf: GGUFFile, specs: Iterable[TensorSpec]) -> dict[str, TensorInfo]:
    """The file's tensors that the architecture names, checked, in the shapes that the graph sees.

    Raises: TensorMissingError, TensorShapeError.
    """
    found = {}
    for spec in specs:
        info = gguf.tensors.get(spec.name)
        if info is None:
            if spec.required:
                raise TensorMissingError(spec.name, gguf.path)
            continue
        if info.shape != spec.shape and _long_axes(info.shape) != _long_axes(spec.shape):
            raise TensorShapeError(spec.name, spec.shape, info.shape, gguf.path)
        found[spec.name] = replace(info, shape=spec.used_shape)
    return found


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that are longer than 1: files differ in those that are not."""
    return tuple(n for n in shape if n != 1)


def _pack(gguf: GGUFFile, name: str, weight: PackedWeight, pool: ThreadPool) -> None:
    """Pack a matrix in strips, so that file and panels are in memory together for one strip only."""
    source = gguf.tensor_data(name)
    n_panels = weight.n_panels
    step = max(1, n_panels * STRIP_BYTES // max(1, source.nbytes))
    for panel in range(0, n_panels, step):
        end = min(panel + step, n_panels)
        weight.pack(source, pool, panel, end)
        gguf.release(name, source.nbytes * panel // n_panels, source.nbytes * end // n_panels)


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor multiplies as a matrix [n_out, n_in], or as experts' matrices [n_expert, n_out, n_in]."""
    return len(shape) in (2, 3) and not name.endswith(".bias")


def _places(gguf: GGUFFile, tensors: Mapping[str, TensorInfo], mapped: frozenset[str]) -> tuple[dict[str, int], int]:
    """Where each matrix's panels go, in bytes, and how many bytes that takes. Raises: UnsupportedQuantError."""
    places: dict[str, int] = {}
    total = 0
    for name, info in tensors.items():
        if name in mapped or not is_matrix(name, info.shape):
            continue
        n_bytes = weight_bytes(int(info.type), *info.shape[-2:])
        if n_bytes < 0:
            raise UnsupportedQuantError(info.type.name, name, gguf.path)
        places[name] = total
        total += n_bytes * (info.shape[0] if len(info.shape) == 3 else 1)
    return places, total


def _packed(name: str, info: TensorInfo, buffer: LargeBuffer, place: int) -> PackedWeight:
    """A matrix, or the matrices of experts, in a buffer; nothing is written there yet."""
    n_expert = info.shape[0] if len(info.shape) == 3 else 0
    n_rows, n_cols = info.shape[-2:]
    return PackedWeight(name, int(info.type), n_rows, n_cols, buffer, place, n_expert)


class WeightStore:
    """The weights of one file.

    Args:
        gguf: the open file; it must stay open as long as the store is used.
        tensors: what to load, by name.
        pool: its threads share the packing.
        mapped: names of matrices of which only rows are looked up: they stay in the file.
        progress: told the share done.

    Attributes:
        packed_bytes: memory of all packed matrices.

    Raises: UnsupportedQuantError, OutOfMemoryError.
    """

    def __init__(
        self,
        gguf: GGUFFile,
        tensors: Mapping[str, TensorInfo],
        pool: ThreadPool,
        mapped: frozenset[str] = frozenset(),
        progress: Progress | None = None,
    ) -> None:
        self._weights: dict[str, Weight] = {}
        places, total = _places(gguf, tensors, mapped)
        self.packed_bytes = total
        try:
            buffer = LargeBuffer(total)
        except MemoryError:
            raise OutOfMemoryError(total, "the weights") from None
        done = 0
        n_file_bytes = max(1, sum(tensors[name].nbytes for name in places))
        for name, info in tensors.items():
            if name in mapped:
                self._weights[name] = MappedWeight(info.type, info.shape[0], info.shape[1], gguf.tensor_data(name))
            elif name in places:
                weight = _packed(name, info, buffer, places[name])
                _pack(gguf, name, weight, pool)
                self._weights[name] = weight
                done += info.nbytes
                if progress is not None:
                    progress(done / n_file_bytes)
            else:
                values = dequantize(info.type, gguf.tensor_data(name), info.shape)
                self._weights[name] = np.ascontiguousarray(values.reshape(-1), dtype=np.float32)

    @classmethod
    def planned(
        cls, gguf: GGUFFile, tensors: Mapping[str, TensorInfo], mapped: frozenset[str] = frozenset()
    ) -> WeightStore:
        """The same weights with nothing in them: what is compiled for them takes as much memory as for the real ones.

        All matrices lie on top of each other in a buffer that nobody writes to, so that it takes none.

        Raises: UnsupportedQuantError, OutOfMemoryError.
        """
        store = cls.__new__(cls)
        places, store.packed_bytes = _places(gguf, tensors, mapped)
        ends = [*places.values(), store.packed_bytes]
        largest = max((end - begin for begin, end in pairwise(ends)), default=0)
        try:
            buffer = LargeBuffer(largest)
        except MemoryError:
            raise OutOfMemoryError(largest, "the largest weight") from None
        store._weights = {}
        for name, info in tensors.items():
            if name in mapped:
                store._weights[name] = MappedWeight(info.type, info.shape[0], info.shape[1], gguf.tensor_data(name))
            elif name in places:
                store._weights[name] = _packed(name, info, buffer, 0)
            else:
                store._weights[name] = np.ones(info.n_elements, dtype=np.float32)  # some are divided by
        return store

    def __getitem__(self, name: str) -> Weight:
        """The weight of that name, or a row of one by `name[row]`. Raises: TensorMissingError."""
        found = self._weights.get(name)
        if found is None:
            found = self._row(name)
        return found

    def _row(self, name: str) -> F32Array:
        """A row of a matrix by the name `matrix[row]`, kept. Raises: TensorMissingError."""
        base, _, number = name.removesuffix("]").rpartition("[")
        matrix = self._weights.get(base)
        if not isinstance(matrix, (PackedWeight, MappedWeight)) or not number.isdigit():
            raise TensorMissingError(name)
        row = self._weights[name] = matrix.row(int(number))
        return row

    def get(self, name: str) -> Weight | None:
        """The weight of that name, or None."""
        return self._weights.get(name)
