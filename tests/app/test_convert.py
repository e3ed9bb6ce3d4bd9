from __future__ import annotations

import inspect

import pytest

from app.bridge.convert import is_mapped, user_error
from engine import errors


def leaves() -> list[type[errors.EngineError]]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.EngineError)]
    return [kind for kind in kinds if not kind.__subclasses__()]


SAMPLES: tuple[BaseException, ...] = (
    errors.GGUFFormatError("/models/{odd}.gguf", "tensor_count", 16, "is 9,999"),
    errors.TensorMissingError("output_norm.weight"),
    errors.TensorShapeError("output.weight", (1, 2), (3, 4)),
    errors.UnsupportedQuantError("IQ1_S"),
    errors.HparamError("llama.block_count", "is 0"),
    errors.UnsupportedArchitectureError("mamba9", ("llama",)),
    errors.UnsupportedTokenizerError("plamo"),
    errors.ChatTemplateError("it calls itself without end"),
    errors.ContextFullError(600, 512, "tokens"),
    errors.SamplingParamError("top_p", 7, "0 to 1"),
    errors.StateMismatchError("of another model"),
    errors.StateFileError("the checksum is wrong"),
    errors.OutOfMemoryError(2**30, "the weights"),
    errors.KernelStatusError("not finite", "MATMUL", "ffn_up-3"),
    FileNotFoundError(2, "No such file", "/models/gone.gguf"),
    PermissionError(13, "Permission denied", "/models/locked.gguf"),
    OSError(28, "No space left on device"),
    MemoryError(),
    ValueError("{unexpected}"),
)


@pytest.mark.parametrize("kind", leaves())
def test_every_error_has_words_of_its_own(kind: type[errors.EngineError]) -> None:
    assert is_mapped(kind)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_what_a_person_reads_is_whole(error: BaseException) -> None:
    told = user_error(error)
    assert told.title and told.sentence.endswith(".") and told.remedy.endswith(".")
    assert "{e" not in told.sentence
    assert told.sentence[0].isupper()


def test_the_facts_are_in_the_sentence() -> None:
    told = user_error(SAMPLES[0])
    assert "/models/{odd}.gguf" in told.sentence and "tensor_count" in told.sentence
    assert "gone.gguf" in user_error(SAMPLES[14]).sentence
    assert "{unexpected}" in user_error(SAMPLES[-1]).sentence
