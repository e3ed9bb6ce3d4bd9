"""The real models' vocabularies: the oracle's ids, and the time it takes to open them."""

from __future__ import annotations

import json
import time

import pytest

from tests.engine.tokenizer.support import ROOT, load
from tests.models import GEMMA3, QWEN2, SMOLLM2, real_model

ORACLE = ROOT.parent / "shared" / "oracle" / "real"


@pytest.mark.real
@pytest.mark.parametrize("name", [SMOLLM2, GEMMA3, QWEN2])
def test_ids_of_prompts(name: str) -> None:
    path = (ORACLE / name).with_suffix(".json")
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    tokenizer = load(real_model(name))
    prompts = [prompt for prompt in json.loads(path.read_text())["prompts"] if "text" in prompt]
    assert prompts
    for prompt in prompts:
        flags = {key: prompt[key] for key in ("add_special", "parse_special") if key in prompt}
        assert tokenizer.encode(prompt["text"], **flags) == prompt["tokens"]


@pytest.mark.real
@pytest.mark.parametrize("name", [SMOLLM2, GEMMA3, QWEN2])
def test_opening_is_fast(name: str) -> None:
    """0.3 s is the budget; processor time, twice the figure, best of three."""
    path = real_model(name)
    took = []
    for _ in range(3):
        began = time.process_time()
        load(path)
        took.append(time.process_time() - began)
    assert min(took) < 0.6


@pytest.mark.real
def test_encoding_is_fast() -> None:
    """5 MB/s is the aim, half of it the gate."""
    tokenizer = load(real_model(SMOLLM2))
    text = (ROOT / "engine" / "tokenizer" / "base.py").read_text() * 100
    began = time.process_time()
    tokenizer.encode(text)
    assert len(text) / (time.process_time() - began) > 2.5e6
