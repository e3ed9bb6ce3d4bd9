"""Everything that a model file says of itself, for the details view; and whether the file is what its source says.

Stands beside `app.bridge.catalogue`. Imported in the catalogue thread only, since it reads the engine's modules.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from app.bridge.convert import user_error
from app.bridge.messages import DetailRow, ModelDetails, ModelVerified
from engine.errors import EngineError
from engine.gguf import GGUFFile
from engine.gguf.values import StringArray
from engine.model import Model, load_model

SHOWN_CHARS = 2000
SHOWN_ITEMS = 8
HASH_STEP_BYTES = 4 << 20
SAMPLING_PREFIX = "general.sampling."
SAMPLE = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How tall is a giraffe?"},
    {"role": "assistant", "content": "About five metres."},
    {"role": "user", "content": "And its neck?"},
)
"""What a template is tried with."""

_SHA256 = re.compile(r"(?:sha256[-:])?([0-9a-f]{64})", re.IGNORECASE)
_JAN_HASH = re.compile(r"^model_sha256:\s*['\"]?([0-9a-f]{64})", re.IGNORECASE | re.MULTILINE)
_SOURCES = ("general.source.url", "general.repo_url", "general.url", "general.base_model.0.repo_url")


def read_details(path: Path) -> ModelDetails:
    """All that a file says; a part that cannot be read says why."""
    try:
        with load_model(path, vocab_only=True) as model:
            gguf = model.gguf
            template, sample = _template(model)
            return ModelDetails(
                path=path,
                about=_about(gguf, model),
                sampling=tuple(
                    DetailRow(key.removeprefix(SAMPLING_PREFIX), shown(value))
                    for key, value in gguf.metadata.items()
                    if key.startswith(SAMPLING_PREFIX)
                ),
                tensors=_tensors(gguf),
                metadata=tuple(DetailRow(key, shown(value)) for key, value in gguf.metadata.items()),
                template=template,
                sample=sample,
                source_sha256=source_hash(path),
            )
    except (EngineError, OSError, MemoryError) as error:
        return ModelDetails(path, problem=str(user_error(error)))


def verify(path: Path, is_cancelled: Callable[[], bool], on_progress: Callable[[float], None]) -> ModelVerified:
    """The SHA-256 of a file beside the one that its source gave for it.

    Args:
        on_progress: told the share read, 0 to 1.

    Returns: an empty hash where it was cancelled, or with what went wrong.
    """
    digest = hashlib.sha256()
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            n_read = 0
            while data := file.read(HASH_STEP_BYTES):
                if is_cancelled():
                    return ModelVerified(path)
                digest.update(data)
                n_read += len(data)
                on_progress(n_read / max(size, n_read))
    except OSError as error:
        return ModelVerified(path, problem=error.strerror or str(error))
    return ModelVerified(path, digest.hexdigest(), source_hash(path))


def source_hash(path: Path) -> str:
    """The SHA-256 that whoever fetched a file kept for it; "" where there is none.

    The hub's cache and Ollama name blobs by it; Jan writes it into model.yml.
    """
    for place in (path, path.resolve()):
        found = _SHA256.fullmatch(place.name)
        if found:
            return found[1].lower()
    try:
        text = (path.parent / "model.yml").read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return ""
    written = _JAN_HASH.search(text)
    return written[1].lower() if written else ""


def shown(value: object) -> str:
    """A value of the metadata as a person may read it, shortened."""
    if isinstance(value, StringArray):
        items = [item.decode(errors="replace") for item in value[:SHOWN_ITEMS]]
        return _list(items, len(value))
    if isinstance(value, np.ndarray):
        return _list([str(item) for item in value[:SHOWN_ITEMS].tolist()], len(value))
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text):,})"


def _list(items: list[str], n: int) -> str:
    more = f", … ({n:,})" if n > len(items) else ""
    return ", ".join(item[:SHOWN_CHARS] for item in items) + more


def _about(gguf: GGUFFile, model: Model) -> tuple[DetailRow, ...]:
    meta = gguf.metadata
    tokenizer = model.tokenizer
    rows = [
        ("Name", model.name),
        ("Architecture", gguf.architecture),
        ("Parameters", f"{model.n_params:,}"),
        ("Licence", shown(meta.get("general.license", meta.get("general.license.name", "")))),
        ("Author", shown(meta.get("general.author", meta.get("general.organization", "")))),
        ("Source", next((shown(meta[key]) for key in _SOURCES if key in meta), "")),
        ("Trained context", shown(meta.get(f"{gguf.architecture}.context_length", ""))),
        ("Layers", shown(meta.get(f"{gguf.architecture}.block_count", ""))),
        ("Tokenizer", f"{tokenizer.model}, {tokenizer.n_vocab:,}"),
        ("Chat template", model.chat_template.kind),
        ("Files", ", ".join(part.name for part in gguf.paths)),
        ("Bytes", f"{gguf.size_bytes:,}"),
    ]
    return tuple(DetailRow(name, value) for name, value in rows if value)


def _tensors(gguf: GGUFFile) -> tuple[DetailRow, ...]:
    n_tensors, n_bytes = Counter[str](), Counter[str]()
    for tensor in gguf.tensors.values():
        n_tensors[tensor.type.name] += 1
        n_bytes[tensor.type.name] += tensor.nbytes
    return tuple(DetailRow(name, f"{n_tensors[name]:,} / {n:,}") for name, n in n_bytes.most_common())


def _template(model: Model) -> tuple[str, str]:
    """The chat template, and a sample that it renders; or why it does not."""
    try:
        template = model.chat_template
    except EngineError as error:
        return "", str(error)
    try:
        return template.source, template.render(SAMPLE)
    except EngineError as error:
        return template.source, str(error)
