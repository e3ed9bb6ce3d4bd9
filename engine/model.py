"""`Model`: an open file with its architecture, tokenizer, chat template and weights.

Made by `engine.load_model`; contexts are made from it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType

from engine.arch.base import Arch
from engine.arch.registry import create_arch
from engine.backend.cpu.stages import Weight
from engine.backend.threads import default_threads, make_pool
from engine.chat import ChatTemplate
from engine.errors import BackendUnavailableError, ParamError, UnsupportedCallError
from engine.gguf import GGUFFile, open_gguf
from engine.graph.tensor import WeightInfo
from engine.hparams import HParams
from engine.tokenizer import Tokenizer, load_tokenizer
from engine.weights import Progress, WeightStore, check_tensors

FINGERPRINT_SAMPLES = 64
FINGERPRINT_SAMPLE_BYTES = 4096


class Model:
    """A model file, opened.

    Attributes:
        path: the (first) file.
        gguf: the reader.
        arch: what the model is; None-free except for a vocabulary file opened with vocab_only.
        weight_infos: shape and type of every weight in use, by name.
        load_ms: time it took to load the weights.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        n_threads: int | None = None,
        device: str = "cpu",
        vocab_only: bool = False,
        plan_only: bool = False,
        progress: Progress | None = None,
    ) -> None:
        if device != "cpu":
            raise BackendUnavailableError(f"device '{device}' is not available; 'cpu' is")
        self.n_threads = default_threads() if n_threads is None else n_threads
        if not 1 <= self.n_threads <= 512:
            raise ParamError(f"n_threads={n_threads}: 1 to 512")
        began = time.perf_counter()
        self.path = Path(path)
        self.gguf: GGUFFile = open_gguf(path)
        self._arch: Arch | None = None
        self._weights: WeightStore | None = None
        self.weight_infos: Mapping[str, WeightInfo] = {}
        try:
            if not vocab_only:
                self._load(progress, plan_only)
        except BaseException:
            self.gguf.close()
            raise
        self.load_ms = 1000 * (time.perf_counter() - began)

    def _load(self, progress: Progress | None, plan_only: bool) -> None:
        arch = create_arch(self.gguf)
        specs = list(arch.tensors())
        tensors = check_tensors(self.gguf, specs)
        self.weight_infos = MappingProxyType({n: WeightInfo(t.shape, t.type) for n, t in tensors.items()})
        mapped = frozenset(spec.name for spec in specs if spec.mapped)
        if "output.weight" in tensors:
            mapped |= {"token_embd.weight"}
        if plan_only:
            self._weights = WeightStore.planned(self.gguf, tensors, mapped)
        else:
            self._weights = WeightStore(self.gguf, tensors, make_pool(self.n_threads), mapped, progress)
        self._arch = arch

    @property
    def arch(self) -> Arch:
        """The architecture. Raises: UnsupportedCallError: for a model opened with vocab_only."""
        if self._arch is None:
            raise UnsupportedCallError("arch", "a model opened with vocab_only")
        return self._arch

    @property
    def hparams(self) -> HParams:
        """The common parameters."""
        return self.arch.hparams

    def weight(self, name: str) -> Weight:
        """A weight as the backend reads it. Raises: TensorMissingError, UnsupportedCallError."""
        if self._weights is None:
            raise UnsupportedCallError("weight", "a model opened with vocab_only")
        return self._weights[name]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back. Raises: UnsupportedTokenizerError, ModelFileError."""
        return load_tokenizer(self.gguf)

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """How messages become a prompt. Raises: ChatTemplateError."""
        return ChatTemplate.from_gguf(self.gguf, self.tokenizer)

    @property
    def n_params(self) -> int:
        """Parameters in the file."""
        return sum(t.n_elements for t in self.gguf.tensors.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of the file, all parts together."""
        return self.gguf.size_bytes

    @property
    def n_ctx_train(self) -> int:
        """Positions the model was trained on."""
        return self.hparams.n_ctx_train

    @property
    def weights_bytes(self) -> int:
        """Memory that the packed weights take."""
        return 0 if self._weights is None else self._weights.packed_bytes

    @cached_property
    def name(self) -> str:
        """The model's own name, or the file's."""
        return self.gguf.get_str("general.name", "") or self.path.stem

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the model: metadata, tensor list and samples of the weights (hex)."""
        digest = hashlib.blake2b(digest_size=16)
        for key in sorted(self.gguf.metadata):
            value = self.gguf.metadata[key]
            if isinstance(value, (int, float, str)):
                digest.update(f"{key}={value!r}\n".encode(errors="surrogatepass"))
        tensors = list(self.gguf.tensors.values())
        for info in tensors:
            digest.update(f"{info.name} {info.type.name} {info.shape}\n".encode(errors="surrogatepass"))
        for info in tensors[:: max(1, len(tensors) // FINGERPRINT_SAMPLES)]:
            digest.update(self.gguf.tensor_data(info.name)[:FINGERPRINT_SAMPLE_BYTES].tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        """Let go of the file and the weights. Contexts of the model must be closed before."""
        self._weights = None
        self.gguf.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load_model(
    path: str | Path,
    *,
    n_threads: int | None = None,
    device: str = "cpu",
    vocab_only: bool = False,
    plan_only: bool = False,
    progress: Progress | None = None,
) -> Model:
    """Open a model file.

    Args:
        path: a GGUF file, or the first part of a split one.
        n_threads: threads for loading, and the default of contexts; None: the processors this process may use.
        device: "cpu".
        vocab_only: only metadata and tokenizer.
        plan_only: weights without content, to see what the model would take (`engine.estimate`).
        progress: told the share of the weights loaded, 0 to 1.

    Raises:
        ModelFileError: a damaged file, or one with types that are not supported.
        UnsupportedModelError: an architecture that is not known.
        OutOfMemoryError: weights that do not fit.
    """
    return Model(
        path, n_threads=n_threads, device=device, vocab_only=vocab_only, plan_only=plan_only, progress=progress
    )
