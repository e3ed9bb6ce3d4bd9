"""What was read of model files before, kept by path, size and time, so that hundreds of them are listed at once.

Beside `app.bridge.catalogue`, which fills it. A cache that cannot be read or written is only slow.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from app.bridge.messages import ContextNeed, ModelEntry

VERSION = 1
"""Another one where entries mean something else: older caches are not read then."""
SAMPLE_BYTES = 4096
N_SAMPLES = 16
HEAD_BYTES = 1 << 16

_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
"""What JSON gives for a field of each type."""

Key = tuple[str, int, int]
"""Path, bytes, and the time of the last change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a file.

    Attributes:
        entry: None for a file that is no model.
        is_judged: the entry says what the model would take.
        digest: of the content, see `sample_digest`; "" while nobody needed it.
    """

    entry: ModelEntry | None
    is_judged: bool = False
    digest: str = ""


def load_cache(path: Path) -> dict[Key, Known]:
    """What was saved; nothing where there is no such file or it is damaged."""
    try:
        saved = json.loads(path.read_bytes())
        if saved["version"] != VERSION:
            return {}
        return {_read_key(item["key"]): _read_known(item) for item in saved["files"]}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def save_cache(path: Path, known: Mapping[Key, Known]) -> None:
    """Write it whole or not at all. Raises: OSError."""
    files = [
        {"key": key, "entry": _written(k.entry), "is_judged": k.is_judged, "digest": k.digest}
        for key, k in known.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps({"version": VERSION, "files": files}))
    part.replace(path)


def sample_digest(path: Path, size_bytes: int) -> str:
    """A digest of a file's header and of samples of the rest: the same for copies, whatever they are called.

    Raises: OSError.
    """
    digest = hashlib.blake2b(str(size_bytes).encode(), digest_size=16)
    with path.open("rb") as file:
        digest.update(file.read(HEAD_BYTES))
        for i in range(N_SAMPLES):
            file.seek(size_bytes * (i + 1) // (N_SAMPLES + 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _written(entry: ModelEntry | None) -> dict[str, object] | None:
    return None if entry is None else asdict(entry) | {"path": os.fspath(entry.path)}


def _read_key(key: list[object]) -> Key:
    path, n_bytes, time_ns = key
    return str(path), int(str(n_bytes)), int(str(time_ns))


def _read_known(item: Mapping[str, object]) -> Known:
    """One file's. Raises: ValueError, TypeError, KeyError: something else was saved."""
    saved = item["entry"]
    if saved is None:
        return Known(None, bool(item["is_judged"]), str(item["digest"]))
    if not isinstance(saved, dict) or saved.keys() != {field.name for field in fields(ModelEntry)}:
        raise ValueError("another kind of entry")
    contexts = tuple(ContextNeed(str(c["type_kv"]), int(c["n_ctx"]), int(c["n_bytes"])) for c in saved["contexts"])
    for field in fields(ModelEntry):
        if field.type in _TYPES and not isinstance(saved[field.name], _TYPES[str(field.type)]):
            raise ValueError("another type of field")
    return Known(
        ModelEntry(**saved | {"path": Path(saved["path"]), "contexts": contexts}),
        bool(item["is_judged"]),
        str(item["digest"]),
    )
