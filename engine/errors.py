"""Every error the engine raises on purpose; each holds its facts as fields and says them in one sentence.

Stands beside the whole pipeline: any part of the engine may raise one of these, and `app.bridge.convert` maps each
leaf class to what a person reads.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors of the engine."""


class ModelFileError(EngineError, ValueError):
    """A model file that cannot be used: damaged, incomplete, or of a kind that is not known."""


class GGUFFormatError(ModelFileError):
    """A GGUF file that breaks the format.

    Attributes:
        path: the file.
        field: what was being read ("tensor_count", "kv 'llama.block_count'").
        offset: byte offset in the file where it stands, or -1 where no single place is at fault.
        reason: what is wrong with it.
    """

    def __init__(self, path: object, field: str, offset: int, reason: str) -> None:
        super().__init__(path, field, offset, reason)
        self.path, self.field, self.offset, self.reason = str(path), field, offset, reason

    def __str__(self) -> str:
        where = f" at byte {self.offset:,}" if self.offset >= 0 else ""
        return f"{self.path}: {self.field}{where}: {self.reason}"


class TensorMissingError(ModelFileError):
    """A tensor that the architecture needs is not in the file."""

    def __init__(self, name: str, path: object = "") -> None:
        super().__init__(name, path)
        self.name, self.path = name, str(path)

    def __str__(self) -> str:
        return f"{self.path or 'the model file'}: tensor '{self.name}' is missing"


class TensorShapeError(ModelFileError):
    """A tensor whose shape is not the one that the architecture needs."""

    def __init__(self, name: str, expected: tuple[int, ...], got: tuple[int, ...], path: object = "") -> None:
        super().__init__(name, expected, got, path)
        self.name, self.expected, self.got, self.path = name, expected, got, str(path)

    def __str__(self) -> str:
        return f"{self.path or 'the model file'}: tensor '{self.name}' has shape {self.got}, expected {self.expected}"


class UnsupportedQuantError(ModelFileError):
    """A tensor type that this engine does not compute with."""

    def __init__(self, type_name: str, tensor: str = "", path: object = "") -> None:
        super().__init__(type_name, tensor, path)
        self.type_name, self.tensor, self.path = type_name, tensor, str(path)

    def __str__(self) -> str:
        where = f" (tensor '{self.tensor}')" if self.tensor else ""
        return f"{self.path or 'the model file'}: quantisation type {self.type_name}{where} is not supported"


class HparamError(ModelFileError):
    """A model parameter in the metadata that is missing or out of range."""

    def __init__(self, key: str, reason: str, path: object = "") -> None:
        super().__init__(key, reason, path)
        self.key, self.reason, self.path = key, reason, str(path)

    def __str__(self) -> str:
        return f"{self.path or 'the model file'}: {self.key}: {self.reason}"


class UnsupportedModelError(EngineError):
    """A sound file that holds something this engine does not know."""


class UnsupportedArchitectureError(UnsupportedModelError):
    """An architecture with no class in `engine.arch`."""

    def __init__(self, arch: str, known: tuple[str, ...]) -> None:
        super().__init__(arch, known)
        self.arch, self.known = arch, known

    def __str__(self) -> str:
        return f"architecture '{self.arch}' is not supported; known are: {', '.join(self.known)}"


class UnsupportedTokenizerError(UnsupportedModelError):
    """A tokenizer model or pre-tokenizer that is not known."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"tokenizer {self.what} is not supported"


class ChatTemplateError(UnsupportedModelError):
    """A chat template that cannot be compiled or rendered."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"chat template: {self.reason}"


class RequestError(EngineError, ValueError):
    """A request that cannot be met as it was made; the state is unchanged."""


class ContextFullError(RequestError):
    """No room in the context or in the memory's pool for what was asked.

    Attributes:
        needed, available: how many `what` ("cells", "tokens", "pages").
        remedy: what a person can do about it, or "".
    """

    def __init__(self, needed: int, available: int, what: str = "cells", remedy: str = "") -> None:
        super().__init__(needed, available, what, remedy)
        self.needed, self.available, self.what, self.remedy = needed, available, what, remedy

    def __str__(self) -> str:
        advice = f": {self.remedy}" if self.remedy else ""
        return f"the context is full: {self.needed:,} {self.what} needed, {self.available:,} available{advice}"


class BatchError(RequestError):
    """A batch with something inconsistent in it."""


class ParamError(RequestError):
    """A parameter of a context or a call that is out of range or does not fit the model."""


class SamplingParamError(RequestError):
    """A sampling parameter out of its range."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(name, value, reason)
        self.name, self.value, self.reason = name, value, reason

    def __str__(self) -> str:
        return f"sampling parameter {self.name}={self.value!r}: {self.reason}"


class UnsupportedCallError(RequestError):
    """A call that this kind of context or memory has no meaning for."""

    def __init__(self, call: str, kind: str) -> None:
        super().__init__(call, kind)
        self.call, self.kind = call, kind

    def __str__(self) -> str:
        return f"{self.call} is not available on {self.kind}"


class StateFileError(EngineError):
    """Saved state that cannot be used; nothing was changed."""

    def __init__(self, reason: str, path: object = "") -> None:
        super().__init__(reason, path)
        self.reason, self.path = reason, str(path)

    def __str__(self) -> str:
        return f"{self.path + ': ' if self.path else ''}saved state: {self.reason}"


class StateVersionError(StateFileError):
    """Saved state of a version that this engine does not read."""


class StateMismatchError(StateFileError):
    """Saved state of another model or of parameters that give other numbers."""


class AdapterError(EngineError):
    """A LoRA adapter or control vector that does not fit the model or cannot be read."""


class BackendError(EngineError):
    """A compute backend that failed."""


class BackendUnavailableError(BackendError):
    """A device or backend that is not there."""


class OutOfMemoryError(BackendError, MemoryError):
    """Memory that could not be had."""

    def __init__(self, n_bytes: int, what: str) -> None:
        super().__init__(n_bytes, what)
        self.n_bytes, self.what = n_bytes, what

    def __str__(self) -> str:
        return f"not enough memory for {self.what}: {self.n_bytes / 2**20:,.0f} MB could not be had"


class KernelBuildError(BackendError):
    """A kernel that a device's compiler refused."""

    def __init__(self, kernel: str, build_log: str) -> None:
        super().__init__(kernel, build_log)
        self.kernel, self.build_log = kernel, build_log

    def __str__(self) -> str:
        return f"kernel '{self.kernel}' could not be built: {self.build_log[:500]}"


class KernelStatusError(BackendError):
    """A compiled operation that reported a failure, or gave values that are not finite."""

    def __init__(self, status: str, op: str = "", node: str = "") -> None:
        super().__init__(status, op, node)
        self.status, self.op, self.node = status, op, node

    def __str__(self) -> str:
        where = f" in {self.op} ({self.node})" if self.op else ""
        return f"compute failed{where}: {self.status}"
