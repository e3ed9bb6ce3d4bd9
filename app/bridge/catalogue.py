"""Reads the headers of the models at hand, for the picker; in a thread of its own, since folders can be slow.

Imported in that thread only, since it reads the engine's modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from app.bridge.convert import user_error
from app.bridge.free_memory import free_memory_bytes
from app.bridge.messages import N_CTX_DEFAULT, ModelEntry, ModelsFound
from app.bridge.places import all_models, model_name
from engine.arch.base import Arch
from engine.arch.registry import create_arch
from engine.errors import EngineError
from engine.gguf import GGUFFile, open_gguf
from engine.weights import check_tensors

F16_BYTES = 2
WORK_BYTES = 64 * 2**20
"""What computing takes beside weights and cache: scratch, logits, the tokenizer."""

_FILE_TYPES = {
    **dict(enumerate(["F32", "F16", "Q4_0", "Q4_1"])),
    **dict(
        enumerate(
            [
                "Q8_0",
                "Q5_0",
                "Q5_1",
                "Q2_K",
                "Q3_K_S",
                "Q3_K_M",
                "Q3_K_L",
                "Q4_K_S",
                "Q4_K_M",
                "Q5_K_S",
                "Q5_K_M",
                "Q6_K",
            ],
            7,
        )
    ),
    **dict(
        enumerate(
            [
                "IQ2_XXS",
                "IQ2_XS",
                "Q2_K_S",
                "IQ3_XS",
                "IQ3_XXS",
                "IQ1_S",
                "IQ4_NL",
                "IQ3_S",
                "IQ3_M",
                "IQ2_S",
                "IQ2_M",
                "IQ4_XS",
            ],
            19,
        )
    ),
    **{31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4"},
}
"""Mixtures of types by their usual names. Source: `general.file_type`, gguf.constants.LlamaFileType."""

Key = tuple[Path, int, int]


class Catalogue:
    """Entries of the files read before, so that a second look at hundreds of models costs little.

    Thread: catalogue thread.
    """

    def __init__(self) -> None:
        self._known: dict[Key, ModelEntry] = {}

    def scan(self, folders: Iterable[str], is_cancelled: Callable[[], bool]) -> ModelsFound:
        """Return an entry for every model file, damaged ones with what is wrong with them."""
        known: dict[Key, ModelEntry] = {}
        for path, origin in all_models(folders):
            if is_cancelled():
                break
            try:
                stat = path.stat()
            except OSError:
                continue
            key = (path, stat.st_size, stat.st_mtime_ns)
            known[key] = self._known.get(key) or read_entry(path, origin)
        self._known = known
        return ModelsFound(tuple(known.values()), free_memory_bytes())


def read_entry(path: Path, origin: str) -> ModelEntry:
    """Return what a file's header says; what is wrong with the file becomes the entry's problem."""
    try:
        gguf = open_gguf(path)
    except (EngineError, OSError) as error:
        return _unreadable(path, origin, error)
    try:
        return _entry(gguf, path, origin)
    except (EngineError, OSError) as error:
        return _unreadable(path, origin, error)
    finally:
        gguf.close()


def _entry(gguf: GGUFFile, path: Path, origin: str) -> ModelEntry:
    problem, n_ctx_train, need_bytes = "", 0, 0
    try:
        arch = create_arch(gguf)
        check_tensors(gguf, arch.tensors())
        n_ctx_train = arch.hparams.n_ctx_train
        if arch.is_encoder:
            problem = "It makes vectors of texts and cannot chat"
        elif arch.has_encoder:
            problem = "It answers one text at a time and cannot chat"
        need_bytes = gguf.size_bytes + _cache_bytes(arch, min(n_ctx_train, N_CTX_DEFAULT)) + WORK_BYTES
    except EngineError as error:
        problem = user_error(error).sentence
    return ModelEntry(
        path=path,
        name=model_name(path),
        arch=gguf.architecture,
        n_params=sum(tensor.n_elements for tensor in gguf.tensors.values()),
        quant=_quant(gguf),
        n_ctx_train=n_ctx_train,
        size_bytes=gguf.size_bytes,
        need_bytes=need_bytes,
        problem=problem,
        note="" if gguf.has("tokenizer.chat_template") else "No chat template: plain text",
        origin=origin,
    )


def _unreadable(path: Path, origin: str, error: EngineError | OSError) -> ModelEntry:
    try:
        size_bytes = path.stat().st_size
    except OSError:
        size_bytes = 0
    return ModelEntry(path, model_name(path), size_bytes=size_bytes, problem=user_error(error).sentence, origin=origin)


def _quant(gguf: GGUFFile) -> str:
    """Return the usual name of the file's mixture of types, else the type that most of the weights have."""
    name = _FILE_TYPES.get(gguf.get_int("general.file_type", -1, lo=-1))
    if name is not None:
        return name
    n_by_type: Counter[str] = Counter()
    for tensor in gguf.tensors.values():
        n_by_type[tensor.type.name] += tensor.n_elements
    return n_by_type.most_common(1)[0][0] if n_by_type else ""


def _cache_bytes(arch: Arch, n_ctx: int) -> int:
    n_bytes = 0
    for layer in arch.memory_spec(n_ctx):
        n_cells = min(n_ctx, layer.n_swa) if layer.n_swa else n_ctx
        n_bytes += n_cells * layer.n_head_kv * (layer.d_k + layer.d_v) * F16_BYTES
    return n_bytes
