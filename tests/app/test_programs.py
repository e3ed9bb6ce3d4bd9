"""Models of other programs, found where those keep them on each system; what is odd there harms nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bridge import places
from app.bridge.programs import Home, program_files, program_folders

SYSTEMS = ("linux", "darwin", "win32")


@pytest.fixture(autouse=True)
def no_models_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "default_models_folder", lambda: tmp_path / "none")


@pytest.fixture(params=SYSTEMS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    folder = tmp_path / "Zoë Müller 名前"
    folder.mkdir()
    environ = {}
    if request.param == "win32":
        environ = {"APPDATA": str(folder / "AppData/Roaming"), "LOCALAPPDATA": str(folder / "AppData/Local")}
    return Home(request.param, folder, environ)


def put(path: Path, data: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def found(home: Home) -> dict[str, str]:
    """Origin by name of file, or the program's own name."""
    return {file.name or file.path.name: file.origin for file in program_files(home)}


def put_ollama(folder: Path, name: str, tag: str, digest: str) -> None:
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:00"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest},
    ]
    put(folder / "manifests/registry.ollama.ai" / name / tag, json.dumps({"layers": layers}).encode())


def test_every_program_on_every_system(home: Home) -> None:
    data = {
        "linux": ".local/share", "darwin": "Library/Application Support", "win32": "AppData/Roaming"
    }[home.system]  # fmt: skip
    local = {"win32": "AppData/Local"}.get(home.system, data)
    cache = {"linux": ".cache", "darwin": "Library/Caches", "win32": "AppData/Local"}[home.system]
    base = home.folder
    put(base / ".lmstudio/models/some one/repo/lm studio.gguf")
    put(base / ".ollama/models/blobs/sha256-abc")
    put_ollama(base / ".ollama/models", "library/llama3", "8b", "sha256:abc")
    put_ollama(base / ".ollama/models", "someone/tiny", "latest", "sha256:abc")
    put(base / ".cache/huggingface/hub/models--org--repo/snapshots/0123/hub.gguf")
    put(base / cache / "llama.cpp/llama-cpp.gguf")
    put(base / local / "nomic.ai/GPT4All/gpt4all.gguf")
    put(base / data / "Jan/data/llamacpp/models/org/repo/jan.gguf")
    put(base / "text-generation-webui/user_data/models/textgen.gguf")
    assert found(home) == {
        "lm studio.gguf": "LM Studio",
        "llama3:8b": "Ollama",
        "someone/tiny:latest": "Ollama",
        "hub.gguf": "Hugging Face: org/repo",
        "llama-cpp.gguf": "llama.cpp",
        "gpt4all.gguf": "GPT4All",
        "jan.gguf": "Jan",
        "textgen.gguf": "text-generation-webui",
    }
    assert len(program_folders(home)) == 7


def test_folders_that_were_moved(home: Home, tmp_path: Path) -> None:
    moved = tmp_path / "other disk"
    environ = {
        "OLLAMA_MODELS": str(moved / "ollama"),
        "HF_HUB_CACHE": str(moved / "hub"),
        "LLAMA_CACHE": str(moved / "llama"),
    }
    other = Home(home.system, home.folder, dict(home.environ) | environ)
    put(home.folder / ".lmstudio-home-pointer", f"{moved / 'studio'}\n".encode())
    put(moved / "studio/models/a/b/pointed.gguf")
    put(moved / "studio/settings.json", json.dumps({"downloadsFolder": str(moved / "downloads")}).encode())
    put(moved / "downloads/a/b/moved.gguf")
    put(moved / "ollama/blobs/sha256-ff")
    put_ollama(moved / "ollama", "library/q", "1b", "sha256:ff")
    put(moved / "hub/models--a--b/snapshots/1/h.gguf")
    put(moved / "llama/l.gguf")
    settings = {"win32": "AppData/Roaming/nomic.ai", "darwin": ".config/gpt4all.io", "linux": ".config/nomic.ai"}
    put(home.folder / settings[home.system] / "GPT4All.ini", f"[General]\nmodelPath={moved / 'gpt'}\n".encode())
    put(moved / "gpt/g.gguf")
    assert set(found(other)) == {"pointed.gguf", "moved.gguf", "q:1b", "h.gguf", "l.gguf", "g.gguf"}


def test_a_jan_model_that_lies_elsewhere(tmp_path: Path) -> None:
    home = Home("linux", tmp_path, {})
    data = tmp_path / ".local/share/Jan/data"
    path = put(tmp_path / "elsewhere/far.gguf")
    put(data / "llamacpp/models/mine/model.yml", f"name: mine\nmodel_path: '{path}'\n".encode())
    put(data / "llamacpp/models/bad/model.yml", b"model_path: ../../../../etc/passwd\n")
    assert found(home) == {"mine": "Jan"}


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{", b"[]", b"null", b'{"layers": 3}', b'{"layers": [3, {"mediaType": "x"}]}', b"\xff\xfe", b"[" * 99_999]
    + [b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "%s"}]}' % digest
       for digest in (b"sha256:../../../../etc/passwd", b"", b"sha256:/etc/passwd", b"\\u0000")],
)  # fmt: skip
def test_odd_manifests_have_no_model(tmp_path: Path, manifest: bytes) -> None:
    put(tmp_path / ".ollama/models/manifests/r/library/m/t", manifest)
    put(tmp_path / ".lmstudio/settings.json", manifest)
    assert found(Home("linux", tmp_path, {})) == {}


def test_links_long_names_and_folders_that_may_not_be_read(tmp_path: Path) -> None:
    home = Home("linux", tmp_path, {})
    models = tmp_path / ".lmstudio/models/a b"
    real = put(models / "ünïcode 模型.gguf", b"GGUF1")
    put(models / ("x" * 240 + ".gguf"), b"GGUF22")
    os.symlink(models / "gone.gguf", models / "broken.gguf")
    os.symlink(models / "loop.gguf", models / "loop.gguf")
    os.symlink(real, models / "link.gguf")
    locked = put(models / "locked/l.gguf").parent
    locked.chmod(0)
    try:
        paths = [file.path.name for file in places.all_models((), home) if "lmstudio" in str(file.path)]
    finally:
        locked.chmod(0o700)
    expected = {"x" * 240 + ".gguf"} | ({"l.gguf"} if os.geteuid() == 0 else set())
    assert set(paths) - {"ünïcode 模型.gguf", "link.gguf"} == expected
    assert len({"ünïcode 模型.gguf", "link.gguf"} & set(paths)) == 1


def test_nothing_is_written(tmp_path: Path) -> None:
    put(tmp_path / ".lmstudio/models/a/b/c.gguf")

    def state() -> Iterator[tuple[str, int]]:
        for place, folders, files in os.walk(tmp_path):
            yield from ((os.path.join(place, name), os.stat(os.path.join(place, name)).st_mtime_ns) for name in folders + files)  # fmt: skip

    before = sorted(state())
    list(places.all_models((), Home("linux", tmp_path, {})))
    assert sorted(state()) == before
