"""From the fields of a request to what the engine is asked for. Names and defaults: OpenAI's, and llama.cpp's beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.generate import GenerateParams
from engine.sampling import SamplerParams
from engine.server.fields import Fields

MAX_CHOICES = 16
MAX_TOP = 20
FORBIDDEN_BIAS = -100.0
"""From here on a bias forbids its token. Source: OpenAI API reference, `logit_bias`."""


@dataclass(frozen=True, slots=True)
class ReplyParams:
    """What all kinds of replies can be asked for.

    Attributes:
        generate: of the first choice.
        n: choices.
        is_stream: send the text as it is made; with_usage: and at the end how many tokens there were.
        slot_id, is_prompt_cached, n_reuse: as for `JobRequest`.
    """

    generate: GenerateParams
    n: int
    is_stream: bool
    with_usage: bool
    slot_id: int | None
    is_prompt_cached: bool
    n_reuse: int

    def of_choice(self, index: int) -> GenerateParams:
        """What one choice is asked for: with a seed each has another one, so that they differ."""
        sampler = self.generate.sampler
        if sampler.seed is None or index == 0:
            return self.generate
        return replace(self.generate, sampler=replace(sampler, seed=(sampler.seed + index) % 2**64))


def read_params(fields: Fields, n_vocab: int, n_reuse: int) -> ReplyParams:
    """The parameters of a reply. Raises: BadRequestError, SamplingParamError."""
    fields.refuse("best_of", "suffix", "echo", "audio", "modalities", "grammar", "json_schema")
    kind = fields.object("response_format").text("type", "text")
    if kind != "text":
        fields.fail("response_format", f"'{kind}' is not supported by this server")
    default = SamplerParams()
    seed = fields.whole("seed", -1, -(2**63), 2**63 - 1)
    sampler = SamplerParams(
        temperature=fields.number("temperature", default.temperature),
        top_k=fields.whole("top_k", default.top_k),
        top_p=fields.number("top_p", default.top_p),
        min_p=fields.number("min_p", default.min_p),
        typical_p=fields.number("typical_p", default.typical_p),
        repeat_penalty=fields.number("repeat_penalty", default.repeat_penalty),
        repeat_last_n=fields.whole("repeat_last_n", default.repeat_last_n, -1),
        frequency_penalty=fields.number("frequency_penalty", default.frequency_penalty),
        presence_penalty=fields.number("presence_penalty", default.presence_penalty),
        seed=None if fields.get("seed") is None or seed == -1 else seed % 2**64,
        logit_bias=_read_bias(fields, n_vocab),
    )
    names = ("max_completion_tokens", "max_tokens", "n_predict")
    n_predict = next((fields.whole(name, -1, -1) for name in names if fields.get(name) is not None), -1)
    generate = GenerateParams(
        sampler, n_predict, stop=tuple(fields.texts("stop")), ignore_eog=fields.flag("ignore_eos", False)
    )
    slot_id = fields.whole("id_slot", -1, -1)
    return ReplyParams(
        generate=generate,
        n=fields.whole("n", 1, 1, MAX_CHOICES),
        is_stream=fields.flag("stream", False),
        with_usage=fields.object("stream_options").flag("include_usage", False),
        slot_id=None if slot_id < 0 else slot_id,
        is_prompt_cached=fields.flag("cache_prompt", True),
        n_reuse=fields.whole("n_cache_reuse", n_reuse),
    )


def _read_bias(fields: Fields, n_vocab: int) -> tuple[tuple[int, float], ...]:
    bias = fields.get("logit_bias")
    if bias is None:
        return ()
    if not isinstance(bias, dict) or len(bias) > n_vocab:
        fields.fail("logit_bias", "an object of token ids and numbers is needed")
    read = []
    for token, value in bias.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not token.isascii() or not token.isdigit():
            fields.fail("logit_bias", "an object of token ids and numbers is needed")
        if len(token) > 9 or int(token) >= n_vocab:
            fields.fail("logit_bias", f"a token id is a whole number from 0 to {n_vocab - 1}")
        read.append((int(token), -math.inf if value <= FORBIDDEN_BIAS else value))
    return tuple(read)
