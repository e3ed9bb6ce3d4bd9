"""The values that cross between the GUI thread and the engine, catalogue and storage threads.

Frozen and slotted, so that a value which two threads hold can never change under either of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UserError:
    """What went wrong, in words for a person.

    Attributes:
        title: a few words.
        sentence: what happened, one sentence.
        remedy: what to do about it, one sentence; may be empty.
    """

    title: str
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model file as the picker lists it.

    Attributes:
        name: the name the file gives itself, else its file name.
        n_params: number of weights.
        quant: the type most of the weights have ("Q4_K").
        n_ctx_train: context the model was trained with, in tokens.
        size_bytes: size of the file, all parts together.
        need_bytes: memory needed to load it and open a chat.
        problem: what is wrong with the file; empty where nothing is.
        note: something worth knowing that is no fault ("no chat template: plain text").
        origin: where it was found, a folder or a package.
    """

    path: Path
    name: str
    arch: str = ""
    n_params: int = 0
    quant: str = ""
    n_ctx_train: int = 0
    size_bytes: int = 0
    need_bytes: int = 0
    problem: str = ""
    note: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; the meaning of each is the engine's `SamplerParams`.

    Attributes:
        seed: None draws one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None
