"""`VisionArch`: a vision transformer and its projector, from an image's patches to rows of a language model's width.

A family's file is read from top to bottom: parameters, tensors, graph. Patches come in blocks: those that the projector
merges into one row follow each other, row by row inside the block.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from engine.arch.base import TensorSpec
from engine.errors import HparamError
from engine.graph import ops
from engine.graph.tensor import AttnSpec, RopeSpec

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor

N_CHANNELS = 3
NO_ROPE = RopeSpec("none", 0, 10000.0)


@dataclass(frozen=True, slots=True)
class VisionHParams:
    """The parameters of a tower.

    Attributes:
        patch_size: pixels along a patch's side.
        n_merge: patches along the side of a block, which becomes one row.
        n_out: width of the rows that come out.
        ffn: the names of the feed-forward's matrices in and out; files of early 2025 have them the wrong way round.
        image_mean, image_std: of each channel, in the scale of 0 to 1.
    """

    image_size: int
    patch_size: int
    n_merge: int
    n_embd: int
    n_head: int
    n_layer: int
    n_ff: int
    n_out: int
    ffn: tuple[str, str]
    f_norm_eps: float
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]

    @property
    def n_patch(self) -> int:
        """Values of a patch."""
        return N_CHANNELS * self.patch_size**2

    @property
    def n_embd_head(self) -> int:
        """Values of a head."""
        return self.n_embd // self.n_head

    @property
    def block_size(self) -> int:
        """Pixels along a block's side."""
        return self.n_merge * self.patch_size


def read_vision_hparams(gguf: GGUFFile, n_merge: int) -> VisionHParams:
    """The `clip.vision.*` parameters. Raises: HparamError: a key that is missing or out of range."""

    def integer(name: str, hi: int) -> int:
        return gguf.get_int(f"clip.vision.{name}", lo=1, hi=hi)

    def channels(name: str) -> tuple[float, ...]:
        values = tuple(float(v) for v in gguf.get_floats(f"clip.vision.{name}"))
        if len(values) != N_CHANNELS or not all(math.isfinite(v) for v in values):
            raise HparamError(f"clip.vision.{name}", f"{values}: one number for each of 3 channels", gguf.path)
        return values

    n_embd, n_head = integer("embedding_length", 1 << 16), integer("attention.head_count", 1024)
    if n_embd % n_head:
        raise HparamError("clip.vision.attention.head_count", f"{n_head} heads of {n_embd} values", gguf.path)
    eps = gguf.get_float("clip.vision.attention.layer_norm_epsilon")
    if not 0.0 <= eps < 1.0:
        raise HparamError("clip.vision.attention.layer_norm_epsilon", f"{eps} is out of range", gguf.path)
    std = channels("image_std")
    if min(std) <= 0.0:
        raise HparamError("clip.vision.image_std", f"{std} is out of range", gguf.path)
    ffn_rows, ffn_columns = _shape(gguf, "v.blk.0.ffn_up.weight")
    is_swapped = ffn_rows == n_embd and ffn_columns != n_embd
    return VisionHParams(
        image_size=integer("image_size", 1 << 14),
        patch_size=integer("patch_size", 256),
        n_merge=n_merge,
        n_embd=n_embd,
        n_head=n_head,
        n_layer=integer("block_count", 1024),
        n_ff=ffn_columns if is_swapped else ffn_rows,  # files of some families have another number in the metadata
        ffn=("ffn_down", "ffn_up") if is_swapped else ("ffn_up", "ffn_down"),
        n_out=integer("projection_dim", 1 << 20),
        f_norm_eps=eps,
        image_mean=channels("image_mean"),
        image_std=std,
    )


def _shape(gguf: GGUFFile, name: str) -> tuple[int, int]:
    """The shape of a matrix; (1, 1) where there is none, which loading will say."""
    info = gguf.tensors.get(name)
    return (info.shape[0], info.shape[1]) if info is not None and len(info.shape) == 2 else (1, 1)


class VisionArch(ABC):
    """A family of vision towers.

    Attributes:
        name: `clip.projector_type`.
        norm: "layer" (with biases) or "rms".
        gated: the feed-forward has a gate.
        n_axes: positions of each row in a language model: 1, or 3 (time, row, column).
        n_frames: kernels of the patch embedding; one image is every frame.
        hparams: the parameters.
        activation: of the feed-forward.
        n_window: blocks along the side of a window of the layers that look through one; 0: none does.
    """

    name: ClassVar[str]
    norm: ClassVar[Literal["layer", "rms"]] = "layer"
    gated: ClassVar[bool] = False
    n_axes: ClassVar[Literal[1, 3]] = 1
    n_frames: ClassVar[int] = 1
    hparams: VisionHParams
    activation: str
    n_window: int = 0

    @abstractmethod
    def __init__(self, gguf: GGUFFile) -> None:
        """Read the parameters. Raises: HparamError."""

    @abstractmethod
    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """The height and width in pixels that an image of this size is brought to: whole blocks."""

    @abstractmethod
    def projector_tensors(self) -> Iterator[TensorSpec]:
        """The tensors of the projector."""

    @abstractmethod
    def build_projector(self, g: GraphI, cur: Tensor) -> Tensor:
        """The projector: merged rows f32[n_outputs, n_merge^2 * n_embd] -> f32[n_outputs, n_out]."""

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor of the tower, in the order of use."""
        hp = self.hparams
        kernel = (hp.n_embd, N_CHANNELS, hp.patch_size, hp.patch_size)
        for name in self.kernels():
            yield TensorSpec(name, kernel, as_matrix=True)
        yield TensorSpec("v.patch_embd.bias", (hp.n_embd,), required=False)
        for il in range(hp.n_layer):
            yield from self.layer_tensors(f"v.blk.{il}")
        yield from self.norm_tensors("v.post_ln")
        yield from self.projector_tensors()

    def layer_tensors(self, blk: str) -> Iterator[TensorSpec]:
        """The tensors of one layer."""
        hp = self.hparams
        yield from self.norm_tensors(f"{blk}.ln1")
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            yield from matrix(f"{blk}.{part}", hp.n_embd, hp.n_embd)
        yield from self.norm_tensors(f"{blk}.ln2")
        for part in (hp.ffn[0], "ffn_gate") if self.gated else (hp.ffn[0],):
            yield from matrix(f"{blk}.{part}", hp.n_ff, hp.n_embd)
        yield from matrix(f"{blk}.{hp.ffn[1]}", hp.n_embd, hp.n_ff)

    def norm_tensors(self, name: str) -> Iterator[TensorSpec]:
        """A norm's weight and bias."""
        yield TensorSpec(f"{name}.weight", (self.hparams.n_embd,))
        if self.norm == "layer":
            yield TensorSpec(f"{name}.bias", (self.hparams.n_embd,))

    def kernels(self) -> list[str]:
        """The names of the patch embedding's kernels, one a frame."""
        return ["v.patch_embd.weight", *(f"v.patch_embd.weight.{i}" for i in range(1, self.n_frames))]

    # -- graph ---------------------------------------------------------------------------------------------------

    def build(self, g: GraphI) -> GraphResult:
        """Patches, layers, final norm, merged rows through the projector."""
        hp = self.hparams
        inp = g.build_cb(self.build_patches(g), "patch_embd")
        pos = g.build_inp("pos")
        for il in range(hp.n_layer):
            inp = self.build_layer(g, inp, pos, il)
        cur = g.build_cb(self.build_norm(g, inp, "v.post_ln"), "post_ln")
        return g.result(embd=g.build_cb(self.build_projector(g, ops.merge_rows(cur, hp.n_merge**2)), "result_embd"))

    def build_patches(self, g: GraphI) -> Tensor:
        """The patch embedding: a product with each frame's kernel."""
        patches = g.build_inp("embd")
        first, *others = (g.weight(name) for name in self.kernels())
        cur = ops.mul_mat(first, patches, g.weight_or_none("v.patch_embd.bias"))
        for kernel in others:
            cur = ops.add(cur, ops.mul_mat(kernel, patches))
        return cur

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention and feed-forward, each behind a norm and with a residual."""
        blk, (name_in, name_out) = f"v.blk.{il}", self.hparams.ffn
        cur = self.build_attn(g, g.build_cb(self.build_norm(g, inp, f"{blk}.ln1"), "ln1", il), pos, il)
        inp = g.build_cb(ops.add(cur, inp), "ffn_inp", il)
        cur = g.build_cb(self.build_norm(g, inp, f"{blk}.ln2"), "ln2", il)
        up = build_mm(g, f"{blk}.{name_in}", cur)
        if self.gated:
            hidden = ops.glu(build_mm(g, f"{blk}.ffn_gate", cur), up, self.activation)
        else:
            hidden = ops.unary(up, self.activation)
        cur = g.build_cb(build_mm(g, f"{blk}.{name_out}", hidden), "ffn_out", il)
        return g.build_cb(ops.add(cur, inp), "l_out", il)

    def build_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Every patch sees all others, or those of its window."""
        hp, blk, d = self.hparams, f"v.blk.{il}", self.hparams.n_embd_head
        q, k, v = (ops.reshape(build_mm(g, f"{blk}.attn_{part}", cur), hp.n_head, d) for part in "qkv")
        q, k = ops.rope(q, pos, self.rope()), ops.rope(k, pos, self.rope())
        spec = AttnSpec(
            cache=0, il=il, n_head=hp.n_head, n_head_kv=hp.n_head, d_k=d, d_v=d, scale=1.0 / math.sqrt(d), rope=NO_ROPE,
            causal=False,
        )  # fmt: skip
        cur = g.build_cb(g.build_attn(q, k, v, spec, NO_ROPE, None), "kqv_out", il)
        return g.build_cb(build_mm(g, f"{blk}.attn_out", cur), "attn_out", il)

    def build_norm(self, g: GraphI, cur: Tensor, name: str) -> Tensor:
        """A norm by the name of its weight."""
        weight, eps = g.weight(f"{name}.weight"), self.hparams.f_norm_eps
        if self.norm == "rms":
            return ops.rms_norm(cur, weight, eps)
        return ops.layer_norm(cur, weight, g.weight(f"{name}.bias"), eps)

    def rope(self) -> RopeSpec:
        """How heads are rotated by the patch's row and column."""
        return NO_ROPE

    def is_windowed(self, il: int) -> bool:
        """Whether a layer looks through windows."""
        return False


def matrix(name: str, n_out: int, n_in: int) -> Iterator[TensorSpec]:
    """A matrix and its bias."""
    yield TensorSpec(f"{name}.weight", (n_out, n_in))
    yield TensorSpec(f"{name}.bias", (n_out,), required=False)


def build_mm(g: GraphI, name: str, cur: Tensor) -> Tensor:
    """A projection with its bias where the file has one."""
    return g.build_lora_mm(g.weight(f"{name}.weight"), cur, g.weight_or_none(f"{name}.bias"))
