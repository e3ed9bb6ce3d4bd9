"""A remote model in the roles that the bridge needs, beside `local_engine`: the same chats, no memory of its own here."""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from app.bridge.cancel import JobCancel
from app.bridge.context_view import ContextView, Cost
from app.bridge.messages import EstimateCost, Finish, Generate, ModelInfo, ReplyStats
from app.bridge.port import Broken, ChatSession, Ended, Generated, PortEvent, SessionCopy
from app.remote.endpoint import RemoteEndpoint, load_endpoint
from app.remote.keys import key_of
from app.remote.stream import RemoteError, RemoteStream

_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "cancelled": "cancelled"}


class RemoteModel:
    """A model behind an endpoint.

    Raises: EndpointError, OSError: the file that names it.
    """

    def __init__(self, path: Path) -> None:
        self.endpoint = load_endpoint(path)
        endpoint = self.endpoint
        fingerprint = hashlib.blake2b(f"{endpoint.url} {endpoint.model}".encode(), digest_size=16).hexdigest()
        self.info = ModelInfo(str(path), endpoint.name, "remote", endpoint.n_ctx, fingerprint, endpoint.mark)

    def open_session(self, n_ctx: int) -> RemoteSession:
        """Make a session; the memory is the server's."""
        return RemoteSession(self.endpoint)

    def cost(self, request: EstimateCost, session: ChatSession | None) -> Cost:
        """Nothing is known of it here."""
        return Cost(0, 0, 0, self.endpoint.n_ctx, 0)

    def close(self) -> None:
        """Nothing is held."""


class RemoteSession:
    """One chat with a remote model; nothing of it is in memory here."""

    out_ids: frozenset[int] = frozenset()
    n_used = 0

    def __init__(self, endpoint: RemoteEndpoint) -> None:
        self._endpoint = endpoint
        self._thread: threading.Thread | None = None
        self._stream: RemoteStream | None = None
        self.n_ctx = endpoint.n_ctx

    def start(self, request: Generate, cancel: JobCancel, on_event: Callable[[PortEvent], None]) -> None:
        """Begin a reply in a thread of its own."""
        stream = RemoteStream(self._endpoint, key_of(self._endpoint.url))
        self._stream = stream
        cancel.pass_on(stream.stop)
        self._thread = threading.Thread(target=self._run, args=(stream, request, on_event), name="remote", daemon=True)
        self._thread.start()

    def _run(self, stream: RemoteStream, request: Generate, on_event: Callable[[PortEvent], None]) -> None:
        messages = [{"role": message.role, "content": message.text} for message in request.messages]
        sampling = request.sampling
        params: dict[str, object] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if request.n_predict > 0:
            params["max_tokens"] = request.n_predict
        if sampling.seed is not None:
            params["seed"] = sampling.seed
        began, first = time.monotonic(), 0.0
        n_pieces = 0

        def take(text: str) -> None:
            nonlocal first, n_pieces
            first = first or time.monotonic()
            n_pieces += 1
            on_event(Generated(text))

        try:
            reply = stream.run(messages, params, take)
        except RemoteError as error:
            on_event(Broken(error))
            return
        ended = time.monotonic()
        n_generated = reply.n_generated or n_pieces
        gen_s = ended - (first or ended)
        stats = ReplyStats(
            n_prompt=reply.n_prompt,
            n_generated=n_generated,
            prefill_ms=1e3 * ((first or ended) - began),
            gen_ms=1e3 * gen_s,
            tok_s=n_generated / gen_s if gen_s > 0 else 0.0,
        )
        on_event(Ended(_FINISHES[reply.finish], stats, b""))

    def snapshot(self) -> SessionCopy:
        """Nobody asks for one while `n_used` is 0."""
        return RemoteCopy()

    def load(self, path: Path) -> str:
        """Nothing has to be read."""
        return ""

    def inspect(self, chat_id: int) -> ContextView:
        """What is in the context is the server's business: not in memory here."""
        return ContextView(chat_id)

    def close(self) -> None:
        """End what still runs."""
        if self._stream is not None:
            self._stream.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


class RemoteCopy:
    """In place of a session's copy: there is nothing to write, and the file of a local model's session stays."""

    def write(self, path: Path) -> int:
        """Raises: OSError."""
        raise OSError(errno.ENOTSUP, "the memory of a remote model is not kept here", str(path))

    def close(self) -> None:
        """Nothing is held."""
