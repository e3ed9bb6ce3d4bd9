"""Runs llama.cpp on request: JSON lines in, JSON lines out. Needs nothing but llama_cpp; run by `compare_peer.py`.

Requests and answers:

    {"do": "load", "model": PATH, "n_threads": N, "n_ctx": N}    {"load_s": S, "system": TEXT, "version": TEXT}
    {"do": "run", "n_prompt": N, "n_gen": N, "seed": N}          {"pp": tok/s, "tg": tok/s}

Answers end with a line end.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import time
from typing import Any

import llama_cpp as ll  # type: ignore[import-not-found, unused-ignore]


def _drop(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
    """Keep stderr for crashes."""


_no_log = ll.llama_log_callback(_drop)


class Peer:
    """One model and one context with llama.cpp's own defaults, but for sizes and threads."""

    def __init__(self, model: str, n_threads: int, n_ctx: int) -> None:
        ll.llama_log_set(_no_log, None)
        ll.llama_backend_init()
        self._model = ll.llama_model_load_from_file(model.encode(), ll.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_ctx, 512
        params.n_threads = params.n_threads_batch = n_threads
        self._ctx = ll.llama_init_from_model(self._model, params)
        self._n_vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self._model))
        self._batch = ll.llama_batch_init(n_ctx, 0, 1)

    def run(self, n_prompt: int, n_gen: int, seed: int) -> dict[str, float]:
        """Random tokens into an empty cache; logits of the last of the prompt and of each that follows."""
        rng = random.Random(seed)
        tokens = [rng.randrange(self._n_vocab) for _ in range(n_prompt + n_gen)]
        ll.llama_memory_clear(ll.llama_get_memory(self._ctx), True)
        began = time.perf_counter()
        self._decode(tokens[:n_prompt], 0)
        ready = time.perf_counter()
        for i in range(n_prompt, n_prompt + n_gen):
            self._decode(tokens[i : i + 1], i)
        ended = time.perf_counter()
        return {"pp": n_prompt / (ready - began), "tg": n_gen / (ended - ready)}

    def _decode(self, tokens: list[int], pos: int) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, pos + i, 1, 0
            batch.logits[i] = i == len(tokens) - 1
        if ll.llama_decode(self._ctx, batch) != 0:
            raise RuntimeError("llama_decode failed")
        ll.llama_synchronize(self._ctx)
        ll.llama_get_logits_ith(self._ctx, -1)


def main() -> None:
    """Serve requests until stdin ends."""
    peer: Peer | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if request.pop("do") == "load":
            began = time.perf_counter()
            peer = Peer(**request)
            answer: dict[str, Any] = {"load_s": time.perf_counter() - began}
            answer["system"] = ll.llama_print_system_info().decode()
            answer["version"] = ll.__version__
        else:
            assert peer is not None
            answer = dict(peer.run(**request))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
