"""The chain against numpy, its order, its draws, its errors and its state."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import KernelStatusError, SamplingParamError, StateFileError
from engine.sampling import Sampler, SamplerParams
from engine.types import F32Array
from tests.engine.sampling.reference import distribution

OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1}


def make_logits(n_vocab: int, seed: int = 0, spread: float = 3.0) -> F32Array:
    return (np.random.default_rng(seed).standard_normal(n_vocab) * spread).astype(np.float32)


def drawn(sampler: Sampler, logits: F32Array) -> dict[int, float]:
    ids, probs = sampler.distribution(logits)
    return dict(zip(ids.tolist(), probs.tolist(), strict=True))


def assert_same(got: dict[int, float], want: dict[int, float]) -> None:
    assert got.keys() == want.keys()
    for token, p in want.items():
        assert got[token] == pytest.approx(p, rel=2e-5, abs=1e-9)


PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.2, 0.8, 1.0, 2.5]),
        "top_k": st.sampled_from([0, 1, 2, 40, 200, 5000]),
        "top_p": st.sampled_from([0.0, 0.3, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.7, 1.0]),
        "typical_p": st.sampled_from([0.2, 0.9, 1.0, 1.0]),
        "repeat_penalty": st.sampled_from([1.0, 1.1, 0.5, 3.0]),
        "repeat_last_n": st.sampled_from([-1, 0, 3, 64]),
        "frequency_penalty": st.sampled_from([0.0, 0.5, -0.5]),
        "presence_penalty": st.sampled_from([0.0, 1.0]),
        "logit_bias": st.sampled_from([(), ((3, 5.0),), ((0, -math.inf), (7, -2.0), (3, 8.0))]),
    }
)


@settings(max_examples=300, deadline=None)
@given(PARAMS, st.sampled_from([8, 63, 64, 500, 4096, 4097, 10000]), st.integers(0, 5))
def test_distribution_equals_the_reference(values: dict[str, Any], n_vocab: int, seed: int) -> None:
    params = SamplerParams(**values)
    logits = make_logits(n_vocab, seed)
    window = [int(t) for t in np.random.default_rng(seed).integers(0, 8, 20)]
    sampler = Sampler(params, n_vocab)
    sampler.set_window(window)
    assert_same(drawn(sampler, logits), distribution(logits, params, window))


def test_ties_go_to_the_lower_id() -> None:
    logits = np.zeros(9000, dtype=np.float32)
    assert Sampler(SamplerParams(temperature=0.0), 9000).sample(logits) == 0
    assert sorted(drawn(Sampler(SamplerParams(**OFF | {"top_k": 5}), 9000), logits)) == [0, 1, 2, 3, 4]
    logits[[70, 4200, 8999]] = 1.0
    assert sorted(drawn(Sampler(SamplerParams(**OFF | {"top_k": 2}), 9000), logits)) == [70, 4200]


@pytest.mark.parametrize("n_vocab", [1, 2, 63, 65, 4095, 4096, 4098, 49152, 262144])
def test_greedy_and_top_k_at_every_edge(n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    logits = make_logits(n_vocab)
    for at in {0, n_vocab // 2, n_vocab - 1, int(rng.integers(n_vocab))}:
        here = logits.copy()
        here[at] = 50.0
        assert Sampler(SamplerParams(temperature=0.0), n_vocab).sample(here) == at
    k = min(40, n_vocab)
    want = np.lexsort((np.arange(n_vocab), -logits))[:k]
    ids, _ = Sampler(SamplerParams(**OFF | {"top_k": k}), n_vocab).distribution(logits)
    assert ids.tolist() == want.tolist()


def test_draws_follow_the_distribution() -> None:
    logits = make_logits(50, 3, 1.0)
    params = SamplerParams(**OFF | {"seed": 7})
    sampler = Sampler(params, 50)
    n = 20000
    counts = np.bincount([sampler.sample(logits) for _ in range(n)], minlength=50)
    want = np.array([p for _, p in sorted(distribution(logits, params).items())]) * n
    chi2 = ((counts - want) ** 2 / want).sum()
    assert chi2 < 49 + 5 * math.sqrt(2 * 49)


def test_seed_repeats_and_is_the_same_everywhere() -> None:
    logits = make_logits(1000, 5, 1.0)
    runs = []
    for _ in range(2):
        sampler = Sampler(SamplerParams(seed=42), 1000)
        runs.append([sampler.sample(logits) for _ in range(12)])
    assert runs[0] == runs[1]
    assert runs[0] == [803, 816, 493, 135, 324, 146, 643, 120, 169, 632, 493, 185]
    assert Sampler(SamplerParams(), 10).seed != Sampler(SamplerParams(), 10).seed


def test_generator_is_xoshiro256starstar() -> None:
    def splitmix(x: int) -> tuple[int, int]:
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        z = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return x, z ^ (z >> 31)

    state, words = 123, []
    for _ in range(4):
        state, word = splitmix(state)
        words.append(word)
    sampler = Sampler(SamplerParams(seed=123), 10)
    assert list(sampler._chain.rng_state()) == words
    logits = np.zeros(2**16, dtype=np.float32)
    flat = Sampler(SamplerParams(**OFF | {"seed": 123}), 2**16)
    s1 = words[1] * 5 % 2**64
    first = ((s1 << 7 | s1 >> 57) % 2**64) * 9 % 2**64
    assert flat.sample(logits) == pytest.approx(first >> 48, abs=1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 100, 4999])
@pytest.mark.parametrize("top_k", [0, 40])
def test_logits_that_are_not_finite(bad: float, where: int, top_k: int) -> None:
    logits = make_logits(5000)
    logits[where] = bad
    with pytest.raises(KernelStatusError, match="not finite"):
        Sampler(SamplerParams(top_k=top_k), 5000).sample(logits)


def test_large_finite_logits_pass() -> None:
    logits = np.full(5000, -3e38, dtype=np.float32)
    logits[17] = 3e38
    assert Sampler(SamplerParams(temperature=0.0), 5000).sample(logits) == 17


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", 101), ("temperature", "1"), ("top_k", -1),
        ("top_k", 1.5), ("top_k", True), ("top_p", 1.01), ("top_p", -0.1), ("min_p", math.inf), ("typical_p", 2),
        ("repeat_penalty", 0), ("repeat_last_n", -2), ("frequency_penalty", 1e9), ("presence_penalty", math.nan),
        ("seed", -1), ("seed", 2**64), ("logit_bias", ((-1, 0.0),)), ("logit_bias", ((0, math.inf),)),
    ],
)  # fmt: skip
def test_parameters_out_of_range(name: str, value: object) -> None:
    with pytest.raises(SamplingParamError, match=name):
        SamplerParams(**{name: value})  # type: ignore[arg-type]


def test_bias_outside_the_vocabulary_and_everything_forbidden() -> None:
    with pytest.raises(SamplingParamError, match="vocabulary"):
        Sampler(SamplerParams(logit_bias=((8, 1.0),)), 8)
    forbidden = SamplerParams(logit_bias=tuple((i, -math.inf) for i in range(4)))
    with pytest.raises(SamplingParamError, match="forbids"):
        Sampler(forbidden, 4).sample(np.zeros(4, dtype=np.float32))


def test_wrong_logits_and_tokens_are_refused() -> None:
    sampler = Sampler(SamplerParams(), 8)
    with pytest.raises(ValueError, match="8"):
        sampler.sample(np.zeros(7, dtype=np.float32))
    with pytest.raises(ValueError, match="vocabulary"):
        sampler.accept(8)


def test_saved_state_goes_on_as_if_nothing_happened() -> None:
    params = SamplerParams(seed=3, repeat_penalty=1.5, repeat_last_n=4)
    logits = make_logits(300, 2, 1.0)
    first = Sampler(params, 300)
    for _ in range(7):
        first.accept(first.sample(logits))
    second = Sampler(SamplerParams(seed=99, repeat_penalty=1.5, repeat_last_n=4), 300)
    second.load(first.save())
    for _ in range(20):
        token = first.sample(logits)
        assert second.sample(logits) == token
        first.accept(token)
        second.accept(token)


def test_damaged_state_changes_nothing() -> None:
    sampler = Sampler(SamplerParams(seed=3, presence_penalty=1.0), 300)
    sampler.set_window([1, 2, 3])
    good = sampler.save()
    zeros = good[:4] + bytes(32) + good[36:]
    beyond = good[:-4] + (300).to_bytes(4, "little")
    for bad in (b"", good[:-1], good + b"x", b"XXXX" + good[4:], zeros, beyond):
        with pytest.raises(StateFileError):
            sampler.load(bad)
        assert sampler.save() == good


def test_a_large_vocabulary_is_fast() -> None:
    logits = make_logits(262144)
    for params in (SamplerParams(seed=1), SamplerParams(temperature=0.0)):
        sampler = Sampler(params, len(logits))
        best = math.inf
        for _ in range(100):
            began = time.perf_counter()
            sampler.sample(logits)
            best = min(best, time.perf_counter() - began)
        assert best < 200e-6  # twice the goal
