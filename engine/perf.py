"""Counters of a context: how many tokens it computed, how long that took, how many it found ready.

Stands beside the pipeline: the context adds to them in `decode`, the session adds what it reused, `causerie-cli`
and the status line read them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PerfData:
    """What a context has computed since it was made or since `reset`.

    A call that decodes one token counts as generation (`eval`), one that decodes several as prompt (`p_eval`).

    Attributes:
        t_load_ms: time the model took to load.
        n_p_eval: tokens of prompts computed.
        t_p_eval_ms: time that took.
        n_eval: tokens computed one at a time.
        t_eval_ms: time that took.
        n_reused: tokens of prompts that were found in the memory and not computed.
    """

    t_load_ms: float = 0.0
    n_p_eval: int = 0
    t_p_eval_ms: float = 0.0
    n_eval: int = 0
    t_eval_ms: float = 0.0
    n_reused: int = 0

    def add_decode(self, n_tokens: int, elapsed_ms: float) -> None:
        """Count one call of `decode` that computed n_tokens."""
        if n_tokens == 1:
            self.n_eval += 1
            self.t_eval_ms += elapsed_ms
        else:
            self.n_p_eval += n_tokens
            self.t_p_eval_ms += elapsed_ms

    def reset(self) -> None:
        """Set every counter but t_load_ms to zero."""
        self.n_p_eval = self.n_eval = self.n_reused = 0
        self.t_p_eval_ms = self.t_eval_ms = 0.0

    @property
    def p_eval_tok_s(self) -> float:
        """Prompt tokens a second; 0 before the first."""
        return 1e3 * self.n_p_eval / self.t_p_eval_ms if self.t_p_eval_ms > 0 else 0.0

    @property
    def eval_tok_s(self) -> float:
        """Generated tokens a second; 0 before the first."""
        return 1e3 * self.n_eval / self.t_eval_ms if self.t_eval_ms > 0 else 0.0
