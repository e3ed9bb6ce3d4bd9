"""Selective state spaces: the layers of Mamba and Mamba-2. Source: arXiv:2312.00752, arXiv:2405.21060."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.errors import HparamError
from engine.graph import ops, recurrent
from engine.memory.base import LayerState

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


@dataclass(frozen=True, slots=True)
class SsmSizes:
    """Sizes of a state-space layer, by the names of `{arch}.ssm.*`.

    Attributes:
        n_conv: inputs that a channel's convolution sees.
        d_inner: channels.
        d_state: state values of a channel.
        dt_rank: Mamba: width of the time step's projection; Mamba-2: heads.
        n_group: heads share B and C in groups.
    """

    n_conv: int
    d_inner: int
    d_state: int
    dt_rank: int
    n_group: int

    @property
    def conv_width(self) -> int:
        """Channels of Mamba-2's convolution: x, B and C."""
        return self.d_inner + 2 * self.n_group * self.d_state


def read_ssm(gguf: GGUFFile) -> SsmSizes:
    """The sizes from the file. Raises: HparamError."""
    arch = f"{gguf.architecture}.ssm"
    sizes = SsmSizes(
        n_conv=gguf.get_int(f"{arch}.conv_kernel", lo=2, hi=64),
        d_inner=gguf.get_int(f"{arch}.inner_size", lo=1, hi=1 << 20),
        d_state=gguf.get_int(f"{arch}.state_size", lo=1, hi=1 << 16),
        dt_rank=gguf.get_int(f"{arch}.time_step_rank", lo=1, hi=1 << 20),
        n_group=gguf.get_int(f"{arch}.group_count", 1, lo=0, hi=1 << 16) or 1,
    )
    if sizes.d_inner % sizes.n_group:
        raise HparamError(f"{arch}.group_count", f"{sizes.n_group} for {sizes.d_inner} channels", gguf.path)
    return sizes


def read_mamba2(gguf: GGUFFile) -> SsmSizes:
    """The sizes of a Mamba-2 layer from the file. Raises: HparamError."""
    sizes = read_ssm(gguf)
    if sizes.d_inner % sizes.dt_rank or sizes.dt_rank % sizes.n_group:
        heads = f"{sizes.dt_rank} heads for {sizes.d_inner} channels in {sizes.n_group} groups"
        raise HparamError(f"{gguf.architecture}.ssm.time_step_rank", heads, gguf.path)
    return sizes


def mamba_state(il: int, ssm: SsmSizes) -> LayerState:
    """What a Mamba layer carries along."""
    return LayerState(il, (ssm.n_conv - 1) * ssm.d_inner, ssm.d_inner * ssm.d_state)


def mamba2_state(il: int, ssm: SsmSizes) -> LayerState:
    """What a Mamba-2 layer carries along."""
    return LayerState(il, (ssm.n_conv - 1) * ssm.conv_width, ssm.d_inner * ssm.d_state)


def mamba_tensors(il: int, ssm: SsmSizes, n_embd: int) -> Iterator[TensorSpec]:
    """The tensors that `build_mamba_layer` reads."""
    blk, d_x = f"blk.{il}.ssm", ssm.dt_rank + 2 * ssm.d_state
    yield TensorSpec(f"{blk}_in.weight", (2 * ssm.d_inner, n_embd))
    yield TensorSpec(f"{blk}_conv1d.weight", (ssm.d_inner, ssm.n_conv), flat=True)
    yield TensorSpec(f"{blk}_conv1d.bias", (ssm.d_inner,), required=False)
    yield TensorSpec(f"{blk}_x.weight", (d_x, ssm.d_inner))
    yield TensorSpec(f"{blk}_dt.weight", (ssm.d_inner, ssm.dt_rank))
    yield TensorSpec(f"{blk}_dt.bias", (ssm.d_inner,))
    for name, n in (("dt", ssm.dt_rank), ("b", ssm.d_state), ("c", ssm.d_state)):
        yield TensorSpec(f"{blk}_{name}_norm.weight", (n,), required=False)
    yield TensorSpec(f"{blk}_a", (ssm.d_inner, ssm.d_state), flat=True)
    yield TensorSpec(f"{blk}_d", (ssm.d_inner,))
    yield TensorSpec(f"{blk}_out.weight", (n_embd, ssm.d_inner))


def build_mamba_layer(
    g: GraphI, cur: Tensor, il: int, ssm: SsmSizes, eps: float, *, plain_norms: bool = False
) -> Tensor:
    """A Mamba mixer: f32[n_tokens, n_embd], normed -> f32[n_tokens, n_embd].

    Args:
        g: the graph.
        cur: normed rows.
        il: layer; its tensors are those of `mamba_tensors`.
        ssm: sizes.
        eps: of the norms of dt, B and C, where there are some.
        plain_norms: those norms have no weights.
    """
    blk = f"blk.{il}.ssm"
    xz = g.build_lora_mm(g.weight(f"{blk}_in.weight"), cur)
    x, z = ops.columns(xz, 0, ssm.d_inner), ops.columns(xz, ssm.d_inner, ssm.d_inner)
    bias = g.weight_or_none(f"{blk}_conv1d.bias")
    x = g.build_cb(recurrent.conv(x, g.weight(f"{blk}_conv1d.weight"), bias, il, "silu"), "ssm_conv", il)
    low = g.build_lora_mm(g.weight(f"{blk}_x.weight"), x)
    parts, first = [], 0
    for name, n in (("dt", ssm.dt_rank), ("b", ssm.d_state), ("c", ssm.d_state)):
        part = ops.columns(low, first, n)
        weight = g.weight_or_none(f"{blk}_{name}_norm.weight")
        parts.append(ops.rms_norm(part, weight, eps) if weight is not None or plain_norms else part)
        first += n
    dt = g.build_lora_mm(g.weight(f"{blk}_dt.weight"), parts[0], g.weight(f"{blk}_dt.bias"))
    b, c = (ops.reshape(part, 1, ssm.d_state) for part in parts[1:])
    x = ops.reshape(x, ssm.d_inner, 1)
    y = recurrent.ssm_scan(x, dt, b, c, g.weight(f"{blk}_a"), g.weight(f"{blk}_d"), il)
    y = g.build_cb(ops.reshape(y, ssm.d_inner), "ssm_scan", il)
    return g.build_lora_mm(g.weight(f"{blk}_out.weight"), ops.glu(z, y, "silu"))


def mamba2_tensors(il: int, ssm: SsmSizes, n_embd: int) -> Iterator[TensorSpec]:
    """The tensors that `build_mamba2_layer` reads."""
    blk = f"blk.{il}.ssm"
    yield TensorSpec(f"{blk}_in.weight", (ssm.d_inner + ssm.conv_width + ssm.dt_rank, n_embd))
    yield TensorSpec(f"{blk}_conv1d.weight", (ssm.conv_width, ssm.n_conv), flat=True)
    yield TensorSpec(f"{blk}_conv1d.bias", (ssm.conv_width,), required=False)
    yield TensorSpec(f"{blk}_dt.bias", (ssm.dt_rank,))
    yield TensorSpec(f"{blk}_a", (ssm.dt_rank,))
    yield TensorSpec(f"{blk}_d", (ssm.dt_rank,))
    yield TensorSpec(f"{blk}_norm.weight", (ssm.n_group, ssm.d_inner // ssm.n_group), required=False, flat=True)
    yield TensorSpec(f"{blk}_out.weight", (n_embd, ssm.d_inner))


def build_mamba2_layer(g: GraphI, cur: Tensor, il: int, ssm: SsmSizes, eps: float) -> Tensor:
    """A Mamba-2 mixer: f32[n_tokens, n_embd], normed -> f32[n_tokens, n_embd].

    Args:
        g: the graph.
        cur: normed rows.
        il: layer; its tensors are those of `mamba2_tensors`.
        ssm: sizes.
        eps: of the norm over each group of the gated output, where there is one.
    """
    blk, n_head, d_bc = f"blk.{il}.ssm", ssm.dt_rank, ssm.n_group * ssm.d_state
    zxbcdt = g.build_lora_mm(g.weight(f"{blk}_in.weight"), cur)
    z = ops.columns(zxbcdt, 0, ssm.d_inner)
    xbc = ops.columns(zxbcdt, ssm.d_inner, ssm.conv_width)
    dt = ops.add(ops.columns(zxbcdt, ssm.d_inner + ssm.conv_width, n_head), g.weight(f"{blk}_dt.bias"))
    bias = g.weight_or_none(f"{blk}_conv1d.bias")
    xbc = g.build_cb(recurrent.conv(xbc, g.weight(f"{blk}_conv1d.weight"), bias, il, "silu"), "ssm_conv", il)
    x = ops.reshape(ops.columns(xbc, 0, ssm.d_inner), n_head, ssm.d_inner // n_head)
    b = ops.reshape(ops.columns(xbc, ssm.d_inner, d_bc), ssm.n_group, ssm.d_state)
    c = ops.reshape(ops.columns(xbc, ssm.d_inner + d_bc, d_bc), ssm.n_group, ssm.d_state)
    y = recurrent.ssm_scan(x, dt, b, c, g.weight(f"{blk}_a"), g.weight(f"{blk}_d"), il)
    y = g.build_cb(ops.reshape(y, ssm.d_inner), "ssm_scan", il)
    y = ops.glu(z, y, "silu")
    norm = g.weight_or_none(f"{blk}_norm.weight")
    if norm is not None:
        y = ops.rms_norm(ops.reshape(y, ssm.n_group, ssm.d_inner // ssm.n_group), None, eps)
        y = ops.mul(ops.reshape(y, ssm.d_inner), norm)
    return g.build_lora_mm(g.weight(f"{blk}_out.weight"), y)
