"""What a model is said to take is what a fresh process takes, and what does not fit is said in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine import ContextParams, load_model
from engine.estimate import largest_context, memory_need, remedies
from tests.engine.oracle_cases import DATA
from tests.models import GEMMA3, QWEN2, ROOT, SMOLLM2, real_model

MB = 2**20
TINY = DATA / "llama" / "model.gguf"
ALLOWED_SHARE, ALLOWED_BYTES = 0.05, 16 * MB


def measured(path: Path, n_ctx: int, cache_type: str) -> int:
    command = [sys.executable, "-m", "tests.engine.memory_growth", str(path), str(n_ctx), cache_type, cache_type, "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    growth: int = json.loads(done.stdout)["total"]
    return growth


def check(path: Path, n_ctx: int, cache_type: str) -> None:
    params = ContextParams(n_ctx=n_ctx, type_k=cache_type, type_v=cache_type, n_threads=2)
    with load_model(path, plan_only=True) as model:
        estimate = memory_need(model, params).total
    growth = measured(path, n_ctx, cache_type)
    assert abs(estimate - growth) <= max(ALLOWED_SHARE * growth, ALLOWED_BYTES), (estimate / MB, growth / MB)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "n_ctx", "cache_type"),
    [("gemma3", 512, "f16"), ("mixtral", 512, "f32"), ("rwkv7", 512, "f16"), ("falcon-h1", 512, "f16"), ("deepseek2-yarn", 512, "f16")],
)  # fmt: skip
def test_the_estimate_is_what_tiny_models_take(name: str, n_ctx: int, cache_type: str) -> None:
    check(DATA / name / "model.gguf", n_ctx, cache_type)


@pytest.mark.real
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "n_ctx", "cache_type"), [(SMOLLM2, 1024, "f16"), (GEMMA3, 1024, "f16"), (QWEN2, 1024, "q8_0")]
)
def test_the_estimate_is_what_real_models_take(name: str, n_ctx: int, cache_type: str) -> None:
    check(real_model(name), n_ctx, cache_type)


@pytest.mark.parametrize("name", ["llama", "llama-rope_llama3", "gemma4", "t5-gated"])
def test_planning_reads_no_weights_and_computes_nothing(name: str) -> None:
    path = DATA / name / "model.gguf"
    with load_model(path, plan_only=True) as planned, load_model(path) as loaded:
        assert planned.weights_bytes == loaded.weights_bytes
        params = ContextParams(n_ctx=300)
        assert memory_need(planned, params) == memory_need(loaded, params)


def test_the_largest_context_fits_and_the_next_one_does_not() -> None:
    with load_model(DATA / "gemma3" / "model.gguf", plan_only=True) as model:
        params = ContextParams()

        def need(n_ctx: int) -> int:
            return memory_need(model, replace(params, n_ctx=n_ctx)).total

        assert largest_context(model, params, need(512)) == 512
        assert largest_context(model, params, need(512) - 1) == 256
        assert largest_context(model, params, need(256) - 1) == 0
        assert remedies(model, params, need(256) - 1)[0].type_kv == "q8_0"
        assert remedies(model, params, 0) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits address space")
def test_running_out_of_memory_ends_in_a_sentence() -> None:
    program = (
        "import resource, sys, engine.__main__ as m, engine.arch.llama\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]) * 2**20,) * 2)\n"
        "sys.exit(m.main(['generate', sys.argv[2], '-p', 'x' * 400, '-n', '3', '-t', '2', '-c', '0']))\n"
    )
    codes = set()
    for mb in (0, 1, 2, 4, 8, 10, 12, 16, 24, 64, 200):
        command = [sys.executable, "-c", program, str(mb), str(TINY)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        codes.add(done.returncode)
        assert done.returncode in (0, 1), (mb, done.stderr)
        assert done.returncode == 0 or done.stderr.count("\n") == 1, (mb, done.stderr)
    assert codes == {0, 1}
