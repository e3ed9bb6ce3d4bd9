"""The sampler: parameters, the generator's state and the window of past tokens, over the chain in `cext.sample`.

Stands after the context in the life of a token: `engine.generate` gives it the logits of each decode.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable

from cext.sample import SampleChain
from engine.errors import KernelStatusError, SamplingParamError, StateFileError
from engine.sampling.params import SamplerParams
from engine.types import F32Array, I32Array

STATE_HEAD = struct.Struct("<4s4QQ")
STATE_MAGIC = b"SMP1"


class Sampler:
    """Chooses tokens; the same parameters, seed and logits give the same tokens on every platform.

    Args:
        params: how to choose.
        n_vocab: length of the logits.

    Attributes:
        seed: the one in use, also where params had none.

    Raises: SamplingParamError: a bias for a token that the vocabulary does not have.

    Thread: one at a time.
    """

    def __init__(self, params: SamplerParams, n_vocab: int) -> None:
        self.params, self.n_vocab = params, n_vocab
        self.seed = secrets.randbits(64) if params.seed is None else params.seed
        self._chain = SampleChain(
            n_vocab,
            self.seed,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            typical_p=params.typical_p,
            repeat_penalty=params.repeat_penalty,
            frequency_penalty=params.frequency_penalty,
            presence_penalty=params.presence_penalty,
            repeat_last_n=params.repeat_last_n,
        )
        for token, bias in params.logit_bias:
            if token >= n_vocab:
                raise SamplingParamError("logit_bias", token, f"the vocabulary has {n_vocab:,} tokens")
            self._chain.set_bias(token, bias)

    def sample(self, logits: F32Array) -> int:
        """Draw the next token.

        Args:
            logits: f32[n_vocab], left as they are.

        Raises:
            KernelStatusError: a logit is NaN or infinite.
            SamplingParamError: the bias forbids every token.
        """
        try:
            return self._chain.sample(logits)
        except FloatingPointError as error:
            raise KernelStatusError(str(error), "sample") from None
        except LookupError as error:
            raise SamplingParamError("logit_bias", "", str(error)) from None

    def distribution(self, logits: F32Array) -> tuple[I32Array, F32Array]:
        """Ids i32[n] and probabilities f32[n] of the tokens that `sample` draws from; raises what it raises."""
        try:
            return self._chain.distribution(logits)
        except FloatingPointError as error:
            raise KernelStatusError(str(error), "sample") from None
        except LookupError as error:
            raise SamplingParamError("logit_bias", "", str(error)) from None

    def accept(self, token: int) -> None:
        """Put a token into the window that the penalties look back on."""
        self._chain.accept(token)

    def set_window(self, tokens: Iterable[int]) -> None:
        """Replace the window, oldest token first; only the last repeat_last_n count."""
        self._chain.set_window(tokens)

    def save(self) -> bytes:
        """The generator's state and the window."""
        window = self._chain.window()
        return STATE_HEAD.pack(STATE_MAGIC, *self._chain.rng_state(), len(window)) + struct.pack(
            f"<{len(window)}i", *window
        )

    def load(self, data: bytes) -> None:
        """Go on where `save` was called, with the same parameters.

        Raises: StateFileError: not such bytes; nothing is changed.
        """
        if len(data) < STATE_HEAD.size or data[:4] != STATE_MAGIC:
            raise StateFileError("the sampler's part is not one")
        _, *words, n_window = STATE_HEAD.unpack_from(data)
        if len(data) != STATE_HEAD.size + 4 * n_window:
            raise StateFileError(f"the sampler's part has {len(data):,} bytes for {n_window:,} tokens")
        window = struct.unpack_from(f"<{n_window}i", data, STATE_HEAD.size)
        if not any(words) or not all(0 <= token < self.n_vocab for token in window):
            raise StateFileError("the sampler's part has values out of range")
        self._chain.set_rng_state(words)
        self._chain.set_window(window)
