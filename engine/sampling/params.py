"""What a person may set about how tokens are chosen, and within which bounds.

Stands before `engine.sampling.sampler`; the names and defaults are llama.cpp's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import SamplingParamError

MAX_BIAS = 1e6
MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class SamplerParams:
    """How the next token is chosen; checked when made.

    Attributes:
        temperature: 0 to 100; divides the logits. 0: always the most likely token.
        top_k: only the k most likely; 0: all.
        top_p: 0 to 1; only the most likely that together reach p; 1: all.
        min_p: 0 to 1; only those at least p times as likely as the most likely; 0: all.
        typical_p: 0 to 1; only those whose information is nearest to the entropy; 1: all.
        repeat_penalty: above 0; divides positive and multiplies negative logits of tokens in the window; 1: off.
        repeat_last_n: tokens in the window; 0: none, -1: all.
        frequency_penalty: -100 to 100; taken from a logit for each time its token is in the window.
        presence_penalty: -100 to 100; taken once if it is there at all.
        seed: 0 to 2**64-1; None: another one each time.
        logit_bias: (token, bias) pairs added to logits first; -inf forbids a token.

    Raises: SamplingParamError: one of them is out of range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0.0, 100.0)
        _check_number("top_p", self.top_p, 0.0, 1.0)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("typical_p", self.typical_p, 0.0, 1.0)
        _check_number("repeat_penalty", self.repeat_penalty, 1e-3, 1e3)
        _check_number("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        _check_number("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check_whole("top_k", self.top_k, 0, 2**31 - 1)
        _check_whole("repeat_last_n", self.repeat_last_n, -1, 2**31 - 1)
        if self.seed is not None:
            _check_whole("seed", self.seed, 0, MAX_SEED)
        for token, bias in self.logit_bias:
            _check_whole("logit_bias", token, 0, 2**31 - 1)
            if bias != -math.inf:
                _check_number("logit_bias", bias, -MAX_BIAS, MAX_BIAS)


def _check_number(name: str, value: object, lo: float, hi: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lo <= value <= hi:
        raise SamplingParamError(name, value, f"a number from {lo:g} to {hi:g} is needed")


def _check_whole(name: str, value: object, lo: int, hi: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lo <= value <= hi:
        raise SamplingParamError(name, value, f"a whole number from {lo:,} to {hi:,} is needed")
