"""From a model file to what the picker shows of it: its header first, and what it would take when there is time.

Stands between the files that `places` finds and `app.bridge.catalogue`. Imported in the catalogue thread only, since it
reads the engine's modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.bridge.convert import user_error
from app.bridge.messages import N_CTX_DEFAULT, ContextNeed, ModelEntry
from app.bridge.places import model_name
from app.bridge.programs import FoundFile
from app.remote.endpoint import SUFFIX, EndpointError, load_endpoint
from engine.arch.registry import create_arch
from engine.context.params import ContextParams
from engine.errors import EngineError, ParamError
from engine.estimate import active_bytes, memory_need
from engine.gguf import GGUFFile, open_gguf
from engine.model import load_model
from engine.weights import check_tensors

JUDGED_TYPES = ("f16", "q8_0", "q4_0")
"""Cache types that a need is told for, the usual one first."""
N_CTX_SMALL = 1024
REMOTE_ARCH = "remote"
"""What stands for the architecture of a model that runs elsewhere."""
TOWER_ARCHS = ("clip",)
"""Architectures of files that go beside a model and are none."""

_FIRST = ("F32", "F16", "Q4_0", "Q4_1")
_FROM_7 = (
    "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K",
    "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS",
)  # fmt: skip
_FILE_TYPES = {
    **dict(enumerate(_FIRST)),
    **dict(enumerate(_FROM_7, 7)),
    **{31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4"},
}
"""Mixtures of types by their usual names. Source: `general.file_type`, gguf.constants.LlamaFileType."""


def read_entry(found: FoundFile) -> ModelEntry | None:
    """What a file's header says; what is wrong with the file becomes the entry's problem. None: it is no model."""
    if found.path.name.endswith(SUFFIX):
        return _remote(found)
    try:
        gguf = open_gguf(found.path)
    except (EngineError, OSError) as error:
        return _unreadable(found, error)
    try:
        return None if _is_tower(gguf) else _entry(gguf, found)
    except (EngineError, OSError) as error:
        return _unreadable(found, error)
    finally:
        gguf.close()


def judge_entry(entry: ModelEntry, is_cancelled: Callable[[], bool] = lambda: False) -> ModelEntry | None:
    """The entry with the memory that the model takes at several contexts, and what a token has to read.

    Returns: None where it was cancelled.
    """
    if entry.arch == REMOTE_ARCH:
        return entry
    try:
        with load_model(entry.path, plan_only=True) as model:
            n_max = model.n_ctx_train
            contexts = []
            for type_kv in JUDGED_TYPES:
                for n_ctx in sorted({min(n, n_max) for n in (N_CTX_SMALL, N_CTX_DEFAULT, n_max)}):
                    if is_cancelled():
                        return None
                    params = ContextParams(n_ctx=n_ctx, type_k=type_kv, type_v=type_kv)
                    try:
                        contexts.append(ContextNeed(type_kv, n_ctx, memory_need(model, params).total))
                    except ParamError:  # the head size forbids the type
                        break
            usual = min(n_max, N_CTX_DEFAULT)
            need = next(c.n_bytes for c in contexts if (c.type_kv, c.n_ctx) == (JUDGED_TYPES[0], usual))
            return replace(entry, contexts=tuple(contexts), need_bytes=need, active_bytes=active_bytes(model))
    except (EngineError, OSError, MemoryError) as error:
        return replace(entry, problem=user_error(error).sentence)


def _remote(found: FoundFile) -> ModelEntry:
    """A file that names a model elsewhere."""
    try:
        endpoint = load_endpoint(found.path)
    except (EndpointError, OSError) as error:
        return ModelEntry(found.path, found.path.name, problem=str(error), origin=found.origin)
    return ModelEntry(
        found.path, endpoint.name, REMOTE_ARCH, n_ctx_train=endpoint.n_ctx, note=endpoint.mark, origin=found.origin
    )


def _is_tower(gguf: GGUFFile) -> bool:
    """Whether it is a vision or audio tower, which goes beside a model."""
    return gguf.architecture in TOWER_ARCHS or gguf.get_str("general.type", "model") in ("mmproj", "adapter")


def _entry(gguf: GGUFFile, found: FoundFile) -> ModelEntry:
    problem, n_ctx_train = "", 0
    try:
        arch = create_arch(gguf)
        check_tensors(gguf, arch.tensors())
        n_ctx_train = arch.hparams.n_ctx_train
        if arch.is_encoder:
            problem = "It makes vectors of texts and cannot chat"
        elif arch.has_encoder:
            problem = "It answers one text at a time and cannot chat"
    except EngineError as error:
        problem = user_error(error).sentence
    return ModelEntry(
        path=found.path,
        name=found.name or model_name(found.path),
        arch=gguf.architecture,
        n_params=sum(tensor.n_elements for tensor in gguf.tensors.values()),
        quant=_quant(gguf),
        n_ctx_train=n_ctx_train,
        size_bytes=gguf.size_bytes,
        problem=problem,
        note="" if gguf.has("tokenizer.chat_template") else "No chat template: plain text",
        origin=found.origin,
    )


def _unreadable(found: FoundFile, error: EngineError | OSError) -> ModelEntry:
    return ModelEntry(
        found.path,
        found.name or model_name(found.path),
        size_bytes=_size_of(found.path),
        problem=user_error(error).sentence,
        origin=found.origin,
    )


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _quant(gguf: GGUFFile) -> str:
    """The usual name of the file's mixture of types, else the type that most of the weights have."""
    name = _FILE_TYPES.get(gguf.get_int("general.file_type", -1, lo=-1))
    if name is not None:
        return name
    n_by_type: Counter[str] = Counter()
    for tensor in gguf.tensors.values():
        n_by_type[tensor.type.name] += tensor.n_elements
    return n_by_type.most_common(1)[0][0] if n_by_type else ""
