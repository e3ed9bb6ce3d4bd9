"""Open damaged files of one kind, again and again; ends with status 1 where anything but a sentence comes of one.

    python -m tests.engine.hostile KIND FIRST COUNT      KIND: gguf, template, lora, cvec

A process of its own, so that a crash, a hang or a memory without bounds is seen.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from engine import Batch, ContextParams, Model, create_context, load_control_vector, load_lora, load_model
from engine.chat import ChatTemplate
from engine.errors import EngineError
from tests.fuzz import mutated

DATA = Path(__file__).parents[1] / "data"
LIMIT_S = 5
"""Longer than this no file may keep the program."""
LIMIT_BYTES = 1 << 30
"""More memory than this no file may take."""
HEADER_BYTES = 24_000
MESSAGES = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "x"},
]


def try_model(path: Path) -> None:
    """All that the program does with a model that someone opens."""
    with load_model(path, n_threads=1) as model:
        ids = model.tokenizer.encode("some text") or [0]
        model.chat_template.render(MESSAGES)
        ctx = create_context(model, ContextParams(n_ctx=16, n_batch=16))
        try:
            ctx.decode(Batch.from_tokens(ids[:8]))
            model.tokenizer.decode(ids)
        finally:
            ctx.close()


def try_template(path: Path) -> None:
    """A template as a model file brings it."""
    ChatTemplate(path.read_bytes().decode(errors="replace")).render(MESSAGES)


def with_model(use: Callable[[Model, Path], None]) -> Callable[[Path], None]:
    """Something that is opened beside a sound model."""
    model = load_model(DATA / "llama" / "model.gguf", n_threads=1)

    def attempt(path: Path) -> None:
        use(model, path)

    return attempt


def use_lora(model: Model, path: Path) -> None:
    """An adapter, in use for a token."""
    adapter = load_lora(model, path)
    ctx = create_context(model, ContextParams(n_ctx=16, n_batch=16))
    try:
        ctx.set_adapter_lora(adapter, 1.0)
        ctx.decode(Batch.from_tokens([3, 4]))
    finally:
        ctx.close()


def use_vector(model: Model, path: Path) -> None:
    """A control vector, in use for a token."""
    vector = load_control_vector(model, path)
    ctx = create_context(model, ContextParams(n_ctx=16, n_batch=16))
    try:
        ctx.apply_adapter_cvec(vector)
        ctx.decode(Batch.from_tokens([3, 4]))
    finally:
        ctx.close()


def attempts(kind: str) -> tuple[bytes, int, Callable[[Path], None]]:
    """(sound data, where most of the damage goes, what is done with it)."""
    match kind:
        case "gguf":
            return (DATA / "llama" / "model.gguf").read_bytes(), HEADER_BYTES, try_model
        case "template":
            with load_model(DATA / "llama" / "model.gguf", vocab_only=True) as model:
                return model.chat_template.source.encode(), 0, try_template
        case "lora":
            return (DATA / "llama-lora" / "adapter.gguf").read_bytes(), 4000, with_model(use_lora)
        case _:
            return (DATA / "llama-cvec" / "cvec.gguf").read_bytes(), 2000, with_model(use_vector)


def main() -> int:
    """Try all; prints how many were refused."""
    kind, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    data, first_bytes, attempt = attempts(kind)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, used + LIMIT_BYTES))
    n_refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostile.gguf")
        for seed in range(first, first + count):
            path.unlink(missing_ok=True)  # not in place: the last one may still be mapped
            path.write_bytes(mutated(data, random.Random(seed), first_bytes))
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            try:
                attempt(path)
            except EngineError as error:
                n_refused += 1
                if not str(error) or len(str(error)) > 5000:
                    print(f"{kind} {seed}: no sentence", file=sys.stderr)
                    return 1
            except BaseException:
                print(f"{kind} {seed}:", file=sys.stderr)
                raise
            faulthandler.cancel_dump_traceback_later()
    print(n_refused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
