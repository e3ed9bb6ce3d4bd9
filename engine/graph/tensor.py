"""Tensors of the compute graph: what is computed, from what, and of what shape.

The graph stands between an architecture, which builds it through `engine.graph.interface.GraphI`, and a backend,
which compiles it. A tensor is a value that has not been computed; making one computes nothing.

Shapes are written slowest axis first, like numpy. (GGUF and ggml write `ne` fastest first: a weight of GGUF
ne = [n_in, n_out] has shape (n_out, n_in) here.) The first axis of an activation is a symbol: `n_tokens` while all
tokens of the micro batch flow, `n_outputs` after the rows that are asked for have been gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from engine.types import QuantType


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """A weight as the graph knows it: its shape, slowest axis first, and its type in the file."""

    shape: tuple[int, ...]
    quant: QuantType


class Op(Enum):
    """What a tensor is made by. Leaves come first; every other op names its sources in order."""

    WEIGHT = "weight"
    INPUT = "input"
    GET_ROWS = "get_rows"  # weight, ids
    GATHER = "gather"  # x, ids: rows of an activation
    MUL_MAT = "mul_mat"  # weight, x, [bias]
    ADD = "add"  # x, y (y may be a weight vector: the same for every row)
    MUL = "mul"
    SCALE = "scale"
    UNARY = "unary"
    GLU = "glu"  # gate, up
    RMS_NORM = "rms_norm"  # x, [weight]
    LAYER_NORM = "layer_norm"  # x, [weight], [bias]
    SOFTCAP = "softcap"
    ROPE = "rope"  # x, pos, [factors]
    COLUMNS = "columns"  # x: some columns of every row, no copy
    RESHAPE = "reshape"  # x: the same values, no copy
    MERGE_ROWS = "merge_rows"  # x: every n rows as one, no copy
    CLAMP = "clamp"
    SCALE_POS = "scale_pos"  # x: times a factor that grows with the position
    XIELU = "xielu"
    SOFTMAX = "softmax"
    TOP_K = "top_k"  # x: places of the largest values, i32
    PICK = "pick"  # x, ids: the values at those places of the row
    DIV_SUM = "div_sum"  # x / max(sum(x), least)
    MUL_MAT_HEADS = "mul_mat_heads"  # weight, x: a matrix for each head
    HEAD_COLUMNS = "head_columns"  # x: some values of every head
    CONCAT_HEADS = "concat_heads"  # x, y: the values of both behind each other in every head
    MOE = "moe"  # x, ids, weights, gate, up, down, [biases of the three]
    MUL_HEAD_SUM = "mul_head_sum"  # x, y: x times the sum of y in every head
    STORE_KV = "store_kv"  # k, v
    ATTN = "attn"  # q, store, [sinks], [rel_bias]
    ATTN_CROSS = "attn_cross"  # q: attends to the cells of the sequence's source
    # recurrences over each sequence's tokens; see `engine.graph.recurrent`
    CONV = "conv"  # x, weight, [bias]
    TOKEN_SHIFT = "token_shift"  # x
    SSM_SCAN = "ssm_scan"  # x, dt, b, c, a, d
    DELTA_NET = "delta_net"  # q, k, v, gate, beta
    WKV6 = "wkv6"  # r, k, v, w, bonus
    WKV7 = "wkv7"  # r, w, k, v, a, b


class Symbol(Enum):
    """An axis whose length is known only when a micro batch is bound."""

    N_TOKENS = "n_tokens"
    N_OUTPUTS = "n_outputs"


Dim = int | Symbol


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """How positions rotate heads.

    Attributes:
        kind: "none", "norm" (pairs 2i, 2i+1), "neox" (pairs i, i + n_rot/2) or "vision" (as neox; frequencies begin anew
            in each section).
        n_rot: leading dims of a head that are rotated; even.
        freq_base: dimensionless.
        freq_scale: positions are multiplied with it (1 / linear factor).
        ext_factor: 1 where YaRN interpolates by parts, else 0.
        attn_factor: magnitude on cos and sin.
        beta_fast, beta_slow: YaRN's corners in rotations.
        n_ctx_orig: context the model was trained on before it was stretched.
        sections: how many pairs turn by each of a token's positions (M-RoPE: time, row, column); () where it has one.

    Source: arXiv:2104.09864, arXiv:2309.00071, arXiv:2409.12191 (sections); semantics of ggml_rope_ext.
    """

    kind: str
    n_rot: int
    freq_base: float
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    n_ctx_orig: int = 0
    sections: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttnSpec:
    """One layer's attention, as the memory lowers it.

    Attributes:
        cache: index of the cache that holds the layer (0, or 1 for the sliding-window one).
        il: layer.
        scale: factor on q.k.
        swa_kind: "none", "standard", "chunked" or "symmetric".
        n_swa: window in positions, 0 without one.
        softcap: cap * tanh(score / cap), 0 without one.
        max_alibi_bias: 0 without ALiBi.
        causal: a token sees its own position and earlier ones only.
    """

    cache: int
    il: int
    n_head: int
    n_head_kv: int
    d_k: int
    d_v: int
    scale: float
    rope: RopeSpec
    swa_kind: str = "none"
    n_swa: int = 0
    softcap: float = 0.0
    max_alibi_bias: float = 0.0
    causal: bool = True


Attr = int | float | str | RopeSpec | AttnSpec


@dataclass(slots=True, eq=False)
class Tensor:
    """A node of the graph.

    Attributes:
        op: what makes it.
        shape: slowest axis first.
        src: sources in the op's order.
        attrs: the op's parameters by name.
        name: GGUF name of a weight, kind of an input, else the node's name ("attn_norm-3") once `build_cb` gave one.
        quant: type of a weight; None for computed values, which are f32 (inputs of ids and positions: i32).
    """

    op: Op
    shape: tuple[Dim, ...]
    src: tuple[Tensor, ...] = ()
    attrs: dict[str, Attr] = field(default_factory=dict)
    name: str = ""
    quant: QuantType | None = None

    @property
    def n_row(self) -> int:
        """Values in a row: the product of all axes but the first."""
        n = 1
        for dim in self.shape[1:]:
            assert isinstance(dim, int)
            n *= dim
        return n

    @property
    def n_values(self) -> int:
        """Values of a weight."""
        assert isinstance(self.shape[0], int)
        return self.shape[0] * self.n_row

    def integer(self, key: str) -> int:
        """The integer attribute `key`."""
        value = self.attrs[key]
        assert isinstance(value, int)
        return value

    def number(self, key: str) -> float:
        """The numeric attribute `key`."""
        value = self.attrs[key]
        assert isinstance(value, (int, float))
        return float(value)

    def text(self, key: str) -> str:
        """The text attribute `key`."""
        value = self.attrs[key]
        assert isinstance(value, str)
        return value

    def rope(self) -> RopeSpec:
        """The rope attribute."""
        value = self.attrs["rope"]
        assert isinstance(value, RopeSpec)
        return value

    def attn(self) -> AttnSpec:
        """The attention attribute."""
        value = self.attrs["attn"]
        assert isinstance(value, AttnSpec)
        return value


def in_order(roots: list[Tensor]) -> list[Tensor]:
    """Every tensor that the roots need, sources first, in the order in which they were reached.

    Depth first by source order, without recursion: a 100-layer graph is some ten thousand nodes deep.
    """
    done: set[int] = set()
    order: list[Tensor] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if ready:
            done.add(id(node))
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend((source, False) for source in reversed(node.src) if id(source) not in done)
    return order
