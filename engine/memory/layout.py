"""Where K and V of each layer stand in a page: the one place that knows.

A page holds 64 cells: for each layer K, then V, each [n_head_kv][64 cells][row], without gaps. A row is the d_k or
d_v values of one head in the cache's type; the blocks of a quantised type never cross heads.
"""

from __future__ import annotations

import numpy as np

from engine.errors import ParamError
from engine.memory.base import LayerKV
from engine.types import QuantType

PAGE_CELLS = 64

BLOCKS: dict[QuantType, tuple[int, int]] = {
    QuantType.F32: (1, 4),
    QuantType.F16: (1, 2),
    QuantType.BF16: (1, 2),
    QuantType.Q8_0: (32, 34),
    QuantType.Q4_0: (32, 18),
    QuantType.Q4_1: (32, 20),
    QuantType.Q5_0: (32, 22),
    QuantType.Q5_1: (32, 24),
    QuantType.IQ4_NL: (32, 18),
}
"""Cache types: (values, bytes) of a block. Source: gguf.constants.GGML_QUANT_SIZES."""

FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)


def row_bytes(cache_type: QuantType, d_head: int, what: str = "K") -> int:
    """Bytes of one head's row.

    Raises: ParamError: not a cache type, or its blocks would cross heads.
    """
    if cache_type not in BLOCKS:
        known = ", ".join(t.name.lower() for t in BLOCKS)
        raise ParamError(f"{what} cannot be kept as {cache_type.name.lower()}; known are: {known}")
    values, n_bytes = BLOCKS[cache_type]
    if d_head % values:
        name = cache_type.name.lower()
        raise ParamError(f"{what} cannot be kept as {name}: the head size {d_head} is not a multiple of {values}")
    return d_head // values * n_bytes


class KVLayout:
    """Offsets of one cache's pages.

    Attributes:
        layers: the layers it keeps.
        type_k, type_v: the types of all of them.
        page_bytes: bytes of a page of 64 cells.
        cell_bytes: bytes of one cell.
        row_bytes: i64[n_planes], bytes of a row of each (layer, K or V, head) in page order.
    """

    def __init__(self, layers: tuple[LayerKV, ...], type_k: QuantType, type_v: QuantType) -> None:
        self.layers, self.type_k, self.type_v = layers, type_k, type_v
        self._offsets: dict[int, tuple[int, int]] = {}
        self._layer: dict[int, LayerKV] = {}
        rows: list[int] = []
        n_bytes = 0
        for layer in layers:
            row_k = row_bytes(type_k, layer.d_k, "K")
            row_v = row_bytes(type_v, layer.d_v, "V") if layer.d_v else 0
            self._offsets[layer.il] = (n_bytes, n_bytes + layer.n_head_kv * row_k)
            self._layer[layer.il] = layer
            rows += [row_k] * layer.n_head_kv + ([row_v] * layer.n_head_kv if row_v else [])
            n_bytes += layer.n_head_kv * (row_k + row_v)
        self.cell_bytes = n_bytes
        self.page_bytes = n_bytes * PAGE_CELLS
        self.row_bytes = np.array(rows, np.int64)

    def layer(self, il: int) -> LayerKV:
        """The layer il of those kept here."""
        return self._layer[il]

    def has(self, il: int) -> bool:
        """Whether layer il is kept here."""
        return il in self._layer

    def k_off(self, il: int, n_cells: int = PAGE_CELLS) -> int:
        """Byte offset of layer il's K in a page of n_cells."""
        return self._offsets[il][0] * n_cells

    def v_off(self, il: int, n_cells: int = PAGE_CELLS) -> int:
        """Byte offset of layer il's V in a page of n_cells."""
        return self._offsets[il][1] * n_cells

    def describe_layers(self) -> str:
        """The layers in a line, whatever their types."""
        return " ".join(f"{s.il}:{s.n_head_kv}x{s.d_k}/{s.d_v or -s.d_latent}" for s in self.layers)
