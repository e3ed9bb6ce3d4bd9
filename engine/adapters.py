"""LoRA adapters and control vectors, from GGUF files.

Stands beside the model: a context holds the active ones, and the graph builder adds them where they apply.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.cpu.stages import Weight
from engine.backend.threads import make_pool
from engine.errors import AdapterError, ModelFileError
from engine.gguf import GGUFFile, dequantize, open_gguf
from engine.graph.tensor import WeightInfo
from engine.types import F32Array, QuantType
from engine.weights import WeightStore

if TYPE_CHECKING:
    from engine.model import Model

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class LoraAdapter:
    """A low-rank adapter.

    Attributes:
        path: its file.
        digest: of its matrices and of what scales them (hex): the same for the same numbers, wherever the file lies.
        alpha: numerator of the scale.
        pairs: for each weight it changes, the names of A and B in `weights` and the rank.
        weights: its matrices by name; names are unique over all adapters of a process.
        infos: what the graph needs to know of them.
    """

    path: Path
    digest: str
    alpha: float
    pairs: dict[str, tuple[str, str, int]]
    weights: dict[str, Weight]
    infos: dict[str, WeightInfo]


@dataclass(frozen=True, slots=True, eq=False)
class ControlVector:
    """Directions f32[n_embd] by layer, from layer 1; `digest` names them as `LoraAdapter.digest` does."""

    path: Path
    digest: str
    directions: dict[int, F32Array]


def _open(path: str | Path, kind: str) -> GGUFFile:
    try:
        return open_gguf(path)
    except ModelFileError as error:
        raise AdapterError(f"{kind} {error}") from error


def _digest(gguf: GGUFFile, alpha: float) -> str:
    """A digest of all tensors and of what scales them (hex)."""
    digest = hashlib.blake2b(repr(alpha).encode(), digest_size=8)
    for name, info in sorted(gguf.tensors.items()):
        digest.update(f"{name} {info.type.name} {info.shape}\n".encode(errors="surrogatepass"))
        digest.update(gguf.tensor_data(name).data)
    return digest.hexdigest()


def load_lora(model: Model, path: str | Path) -> LoraAdapter:
    """Load a LoRA adapter for a model.

    Raises: AdapterError: a file that is no adapter, or does not fit the model.
    """
    gguf = _open(path, "LoRA adapter")
    try:
        if gguf.metadata.get("adapter.type") != "lora":
            raise AdapterError(f"{path}: no LoRA adapter (general.type and adapter.type say otherwise)")
        if gguf.architecture != model.arch.name:
            raise AdapterError(f"{path}: made for '{gguf.architecture}', the model is '{model.arch.name}'")
        alpha = gguf.get_float("adapter.lora.alpha", 0.0)
        number = next(_numbers)
        pairs: dict[str, tuple[str, str, int]] = {}
        for name, info in gguf.tensors.items():
            base, _, side = name.rpartition(".lora_")
            if side not in ("a", "b") or base not in model.weight_infos:
                raise AdapterError(f"{path}: tensor '{name}' belongs to no weight of the model")
            if side == "b":
                continue
            if len(model.weight_infos[base].shape) != 2:
                raise AdapterError(f"{path}: '{base}' is no matrix that an adapter can change")
            n_out, n_in = model.weight_infos[base].shape
            other = gguf.tensors.get(f"{base}.lora_b")
            if other is None or len(info.shape) != 2 or info.shape[1] != n_in or other.shape != (n_out, info.shape[0]):
                raise AdapterError(f"{path}: the pair of '{base}' is incomplete or does not fit [{n_out}, {n_in}]")
            pairs[base] = (f"lora{number}:{name}", f"lora{number}:{base}.lora_b", info.shape[0])
        if len(gguf.tensors) != 2 * len(pairs):
            raise AdapterError(f"{path}: a pair is incomplete")
        store = WeightStore(gguf, gguf.tensors, make_pool(1))
        return LoraAdapter(
            Path(path),
            _digest(gguf, alpha),
            alpha,
            pairs,
            {f"lora{number}:{n}": store[n] for n in gguf.tensors},
            {f"lora{number}:{n}": WeightInfo(t.shape, t.type) for n, t in gguf.tensors.items()},
        )
    except ModelFileError as error:
        raise AdapterError(str(error)) from error
    finally:
        gguf.close()


def load_control_vector(model: Model, path: str | Path) -> ControlVector:
    """Load a control vector for a model: tensors `direction.N` f32[n_embd] for layers N >= 1.

    Raises: AdapterError: a file that is no control vector, or does not fit the model.
    """
    gguf = _open(path, "control vector")
    try:
        directions: dict[int, F32Array] = {}
        for name, info in gguf.tensors.items():
            head, _, number = name.partition(".")
            if head != "direction" or not number.isdigit() or not 1 <= int(number) < 1 << 16:
                raise AdapterError(f"{path}: tensor '{name}' is no direction of a layer from 1 on")
            if info.shape != (model.hparams.n_embd,) or info.type is not QuantType.F32:
                raise AdapterError(f"{path}: '{name}' must be F32 [{model.hparams.n_embd}], is {info.shape}")
            if int(number) >= model.hparams.n_layer:
                raise AdapterError(f"{path}: '{name}': the model has layers 0 to {model.hparams.n_layer - 1}")
            directions[int(number)] = np.array(dequantize(info.type, gguf.tensor_data(name), info.shape))
        if not directions:
            raise AdapterError(f"{path}: holds no direction")
        return ControlVector(Path(path), _digest(gguf, 0.0), directions)
    finally:
        gguf.close()
