"""Where other programs keep their models: looked at, never written to.

Stands under `places`, which puts these beside the project's own folders. Each function yields the files of one program;
the paths are those of its documentation or source at the time of writing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_MANIFEST_BYTES = 1 << 20
MAX_DEPTH = 4
OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A model file of some program.

    Attributes:
        name: what that program calls it, where the file's own name says nothing; else "".
        origin: the program, or the folder.
    """

    path: Path
    name: str
    origin: str


@dataclass(frozen=True, slots=True)
class Home:
    """The part of a computer that programs look at to find their folders.

    Attributes:
        system: as sys.platform has it.
        folder: the person's own.
        environ: environment variables.
    """

    system: str
    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def here(cls) -> Home:
        """This computer's."""
        return cls(sys.platform, Path.home(), os.environ)

    def named(self, variable: str) -> Path | None:
        """The folder that a variable names, if any."""
        value = self.environ.get(variable, "")
        return Path(value).expanduser() if value else None

    def app_data(self) -> Path:
        """Where programs keep what belongs to them: roaming on Windows."""
        if self.system == "win32":
            return self.named("APPDATA") or self.folder / "AppData" / "Roaming"
        if self.system == "darwin":
            return self.folder / "Library" / "Application Support"
        return self.named("XDG_DATA_HOME") or self.folder / ".local" / "share"

    def local_data(self) -> Path:
        """The same, not roaming."""
        if self.system == "win32":
            return self.named("LOCALAPPDATA") or self.folder / "AppData" / "Local"
        return self.app_data()

    def cache(self) -> Path:
        """Where caches are."""
        if self.system == "win32":
            return self.local_data()
        if self.system == "darwin":
            return self.folder / "Library" / "Caches"
        return self.named("XDG_CACHE_HOME") or self.folder / ".cache"


def program_files(home: Home) -> Iterator[FoundFile]:
    """Model files of all programs that are known; a folder that is gone or may not be read has none."""
    for find in (_lm_studio, _ollama, _hugging_face, _llama_cpp, _gpt4all, _jan, _textgen):
        yield from find(home)


def program_folders(home: Home) -> list[Path]:
    """The folders to watch: those of all programs that are there."""
    folders = [
        *_lm_studio_folders(home),
        *(place / "manifests" for place in _ollama_folders(home)),
        _hub_folder(home),
        *_llama_cpp_folders(home),
        *_gpt4all_folders(home),
        *_jan_folders(home),
        *_textgen_folders(home),
    ]
    return [folder for folder in folders if _is_folder(folder)]


def walk(folder: Path, max_depth: int = MAX_DEPTH) -> Iterator[Path]:
    """The GGUF files in a folder and below it, in the order of their names. Links to folders are not followed."""
    # os.walk passes over what may not be read.
    for place, folders, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < max_depth else []
        yield from (Path(place, name) for name in sorted(files) if name.lower().endswith(".gguf"))


def _in_folders(folders: list[Path], origin: str) -> Iterator[FoundFile]:
    for folder in folders:
        yield from (FoundFile(path, "", origin) for path in walk(folder))


def _lm_studio(home: Home) -> Iterator[FoundFile]:
    return _in_folders(_lm_studio_folders(home), "LM Studio")


def _lm_studio_folders(home: Home) -> list[Path]:
    pointer = _first_line(home.folder / ".lmstudio-home-pointer")
    own = [Path(pointer)] if pointer else []
    own += [home.folder / ".lmstudio", home.folder / ".cache" / "lm-studio"]
    folders = []
    for settings in (home.app_data() / "LM Studio" / "settings.json", *(place / "settings.json" for place in own)):
        moved = _json(settings).get("downloadsFolder")
        if isinstance(moved, str) and moved:
            folders.append(Path(moved))
    return list(dict.fromkeys([*folders, *(place / "models" for place in own)]))


def _ollama(home: Home) -> Iterator[FoundFile]:
    for folder in _ollama_folders(home):
        # manifests/<registry>/<namespace>/<model>/<tag> names the blob of each part.
        for place, _, files in os.walk(folder / "manifests"):
            parts = Path(place).relative_to(folder / "manifests").parts
            if len(parts) < 3:
                continue
            owner = "" if parts[-2] == "library" else f"{parts[-2]}/"
            for tag in sorted(files):
                blob = _ollama_blob(folder, _json(Path(place, tag)))
                if blob is not None:
                    yield FoundFile(blob, f"{owner}{parts[-1]}:{tag}", "Ollama")


def _ollama_blob(folder: Path, manifest: Mapping[str, object]) -> Path | None:
    layers = manifest.get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, dict) or layer.get("mediaType") != OLLAMA_MODEL:
            continue
        digest = str(layer.get("digest", "")).replace(":", "-")
        if digest.removeprefix("sha256-").isalnum():  # a name that stays in the folder
            path = folder / "blobs" / digest
            return path if _is_file(path) else None
    return None


def _ollama_folders(home: Home) -> list[Path]:
    folders = [home.named("OLLAMA_MODELS"), home.folder / ".ollama" / "models"]
    if home.system.startswith("linux"):
        folders.append(Path("/usr/share/ollama/.ollama/models"))
    return list(dict.fromkeys(folder for folder in folders if folder is not None))


def _hugging_face(home: Home) -> Iterator[FoundFile]:
    """Snapshots of the hub's cache; their files are links to blobs, or copies where there are no links."""
    for repo in _folders(_hub_folder(home), "models--"):
        name = repo.name.removeprefix("models--").replace("--", "/")
        for snapshot in _folders(repo / "snapshots"):
            yield from (FoundFile(path, "", f"Hugging Face: {name}") for path in walk(snapshot))


def _hub_folder(home: Home) -> Path:
    hf_home = home.named("HF_HOME") or (home.named("XDG_CACHE_HOME") or home.folder / ".cache") / "huggingface"
    return home.named("HF_HUB_CACHE") or hf_home / "hub"


def _llama_cpp(home: Home) -> Iterator[FoundFile]:
    return _in_folders(_llama_cpp_folders(home), "llama.cpp")


def _llama_cpp_folders(home: Home) -> list[Path]:
    return [home.named("LLAMA_CACHE") or home.cache() / "llama.cpp"]


def _gpt4all(home: Home) -> Iterator[FoundFile]:
    return _in_folders(_gpt4all_folders(home), "GPT4All")


def _gpt4all_folders(home: Home) -> list[Path]:
    settings = {
        "win32": home.app_data() / "nomic.ai", "darwin": home.folder / ".config" / "gpt4all.io"
    }.get(home.system, (home.named("XDG_CONFIG_HOME") or home.folder / ".config") / "nomic.ai")  # fmt: skip
    folders = [home.local_data() / "nomic.ai" / "GPT4All"]
    for line in _text(settings / "GPT4All.ini").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "modelPath" and value.strip():
            folders.insert(0, Path(value.strip()))
    return list(dict.fromkeys(folders))


def _jan(home: Home) -> Iterator[FoundFile]:
    for folder in _jan_folders(home):
        yield from (FoundFile(path, "", "Jan") for path in walk(folder))
        for place, _, files in os.walk(folder):
            if "model.yml" in files:
                path = _jan_path(folder.parent.parent, _text(Path(place, "model.yml")))
                if path is not None:
                    yield FoundFile(path, Path(place).name, "Jan")


def _jan_path(data: Path, text: str) -> Path | None:
    """The file that a model.yml points to: `model_path: ...`, relative to the data folder or not."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model_path" and value.strip():
            path = data / value.strip().strip("'\"")
            return path if path.suffix.lower() == ".gguf" and _is_file(path) else None
    return None


def _jan_folders(home: Home) -> list[Path]:
    return [home.app_data() / "Jan" / "data" / "llamacpp" / "models"]


def _textgen(home: Home) -> Iterator[FoundFile]:
    return _in_folders(_textgen_folders(home), "text-generation-webui")


def _textgen_folders(home: Home) -> list[Path]:
    places = [home.folder, home.folder / "Documents", home.folder / "src", home.folder / "git"]
    names = ("text-generation-webui", "textgen")
    return [place / name / inner for place in places for name in names for inner in ("user_data/models", "models")]


def _folders(folder: Path, prefix: str = "") -> list[Path]:
    try:
        return sorted(place for place in folder.iterdir() if place.name.startswith(prefix) and place.is_dir())
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    """A small text file; "" where it is not there, too large, or no text."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
        return data.decode("utf-8-sig") if len(data) <= MAX_MANIFEST_BYTES else ""
    except (OSError, ValueError):
        return ""


def _first_line(path: Path) -> str:
    return next(iter(_text(path).splitlines()), "").strip()


def _json(path: Path) -> Mapping[str, object]:
    """A small JSON object; empty where it is none."""
    try:
        value: object = json.loads(_text(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
