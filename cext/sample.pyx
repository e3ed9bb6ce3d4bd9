"""Choosing the next token in C: argument checks around `src/sample.h`."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

import numpy as np


cdef extern from "sample.h" namespace "cext" nogil:
    cdef struct Candidate:
        int32_t id
        float logit
        float p

    cdef struct SampleParams:
        double temperature
        int64_t top_k
        double top_p
        double min_p
        double typical_p
        double repeat_penalty
        double frequency_penalty
        double presence_penalty
        int64_t repeat_last_n

    cdef cppclass Xoshiro256:
        uint64_t s[4]

    cdef cppclass CChain "cext::SampleChain":
        CChain(const SampleParams&, int64_t, uint64_t) except +
        void set_bias(int32_t, float) except +
        int distribution(const float*) except +
        int sample(const float*, int32_t*) except +
        const vector[Candidate]& candidates()
        void accept(int32_t) except +
        void reset_window()
        const vector[int32_t]& window()
        Xoshiro256 rng

cdef extern from "status.h" namespace "cext" nogil:
    cdef enum:
        STATUS_OK
        STATUS_NOT_FINITE


cdef class SampleChain:
    """The steps from logits to a token, with the generator's state and the window of past tokens.

    Thread: one at a time.
    """

    cdef CChain* chain
    cdef readonly int64_t n_vocab

    def __cinit__(self, int64_t n_vocab, uint64_t seed, *, double temperature, int64_t top_k, double top_p,
                  double min_p, double typical_p, double repeat_penalty, double frequency_penalty,
                  double presence_penalty, int64_t repeat_last_n):
        cdef SampleParams params
        if not 0 < n_vocab < 2**31:
            raise ValueError(f"n_vocab must be positive and fit 31 bits, not {n_vocab}")
        if temperature < 0 or top_k < 0 or repeat_penalty <= 0:
            raise ValueError("temperature and top_k must not be negative, repeat_penalty must be positive")
        params.temperature = temperature
        params.top_k = top_k
        params.top_p = top_p
        params.min_p = min_p
        params.typical_p = typical_p
        params.repeat_penalty = repeat_penalty
        params.frequency_penalty = frequency_penalty
        params.presence_penalty = presence_penalty
        params.repeat_last_n = repeat_last_n
        self.n_vocab = n_vocab
        self.chain = new CChain(params, n_vocab, seed)

    def __dealloc__(self):
        del self.chain

    cdef int32_t _check_id(self, object token) except -1:
        if not 0 <= token < self.n_vocab:
            raise ValueError(f"token {token} is outside the vocabulary of {self.n_vocab}")
        return token

    cdef int _check_logits(self, const float[::1] logits) except -1:
        if logits.shape[0] != self.n_vocab:
            raise ValueError(f"{logits.shape[0]} logits for a vocabulary of {self.n_vocab}")
        return 0

    cdef int _check_status(self, int status) except -1:
        if status == STATUS_NOT_FINITE:
            raise FloatingPointError("the logits are not finite")
        if status != STATUS_OK:
            raise LookupError("the bias forbids every token")
        return 0

    def set_bias(self, token, float bias):
        """Add bias to a token's logit from now on; -inf forbids it."""
        self.chain.set_bias(self._check_id(token), bias)

    def sample(self, const float[::1] logits not None):  # IN f32[n_vocab]
        """Draw a token; raises FloatingPointError for logits that are not finite, LookupError if all are forbidden."""
        cdef int32_t token = 0
        cdef int status
        self._check_logits(logits)
        with nogil:
            status = self.chain.sample(&logits[0], &token)
        self._check_status(status)
        return token

    def distribution(self, const float[::1] logits not None):  # IN f32[n_vocab]
        """Ids i32[n] and probabilities f32[n] of the tokens that may be drawn."""
        cdef int status
        cdef size_t i
        self._check_logits(logits)
        with nogil:
            status = self.chain.distribution(&logits[0])
        self._check_status(status)
        cdef size_t n = self.chain.candidates().size()
        ids = np.empty(n, np.int32)
        probs = np.empty(n, np.float32)
        cdef int32_t[::1] ids_view = ids
        cdef float[::1] probs_view = probs
        for i in range(n):
            ids_view[i] = self.chain.candidates()[i].id
            probs_view[i] = self.chain.candidates()[i].p
        return ids, probs

    def accept(self, token):
        """Put a token into the window that the penalties look back on."""
        self.chain.accept(self._check_id(token))

    def set_window(self, tokens):
        """Replace the window, oldest token first."""
        checked = [self._check_id(token) for token in tokens]
        self.chain.reset_window()
        for token in checked:
            self.chain.accept(token)

    def window(self):
        """The tokens of the window, oldest first."""
        return list(self.chain.window())

    def rng_state(self):
        """The generator's four words."""
        return tuple(self.chain.rng.s[i] for i in range(4))

    def set_rng_state(self, state):
        """Put the generator where `rng_state` found it; all zeros is no state."""
        words = [int(word) for word in state]
        if len(words) != 4 or not any(words) or not all(0 <= word < 2**64 for word in words):
            raise ValueError("the state of the generator must be four words of 64 bits, not all zero")
        for i in range(4):
            self.chain.rng.s[i] = words[i]
