"""One reply of a remote model, as it comes: server-sent events of an OpenAI-compatible endpoint."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from app.remote.endpoint import RemoteEndpoint

OnText = Callable[[str], None]

TIMEOUT_S = 120.0
"""A long prompt takes its time before the first word."""
MAX_LINE_BYTES = 1 << 20
MAX_TEXT_CHARS = 1 << 24
MAX_ERROR_BYTES = 1 << 14


class RemoteError(Exception):
    """The remote model did not answer as it should; its text is a sentence."""


@dataclass(slots=True)
class RemoteReply:
    """What has come.

    Attributes:
        finish: "stop", "length" or "cancelled".
        n_prompt, n_generated: as the server counts, 0 where it does not say.
    """

    finish: str = "stop"
    n_prompt: int = 0
    n_generated: int = 0


@dataclass(slots=True)
class RemoteStream:
    """A request on its way.

    Thread: `run` in one, `stop` from any.
    """

    endpoint: RemoteEndpoint
    key: str
    timeout_s: float = TIMEOUT_S
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connection: http.client.HTTPConnection | None = None
    _is_stopped: bool = False

    def stop(self) -> None:
        """End it; `run` returns soon."""
        with self._lock:
            self._is_stopped = True
            if self._connection is not None and self._connection.sock is not None:
                with suppress(OSError):  # it has ended by itself
                    self._connection.sock.shutdown(socket.SHUT_RDWR)

    def run(self, messages: Sequence[Mapping[str, str]], params: Mapping[str, object], on_text: OnText) -> RemoteReply:
        """Ask, and tell each piece of text as it comes.

        Raises: RemoteError.
        """
        connection = self._connect()
        try:
            return self._read(self._ask(connection, messages, params), on_text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._is_stopped:
                return RemoteReply("cancelled")
            said = " ".join(str(error).split())[:200] or type(error).__name__
            raise RemoteError(f"{self.endpoint.host} did not answer: {said}") from None
        finally:
            with self._lock:
                self._connection = None
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.endpoint.url)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, parts.port, timeout=self.timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self.timeout_s)
        with self._lock:
            self._connection = connection
        return connection

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        messages: Sequence[Mapping[str, str]],
        params: Mapping[str, object],
    ) -> http.client.HTTPResponse:
        body = {"model": self.endpoint.model, "messages": list(messages), "stream": True, **params}
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        path = urlsplit(self.endpoint.url).path.rstrip("/") + "/chat/completions"
        connection.request("POST", path, json.dumps(body).encode(errors="replace"), headers)
        if self._is_stopped:  # perhaps before there was a socket to shut
            raise ConnectionAbortedError
        response = connection.getresponse()
        if response.status != 200:
            raise RemoteError(f"{self.endpoint.host} refused: {_reason(response)}")
        return response

    def _read(self, response: http.client.HTTPResponse, on_text: OnText) -> RemoteReply:
        reply, n_chars, is_over = RemoteReply(), 0, False
        while line := response.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise RemoteError(f"{self.endpoint.host} sent a line without an end")
            if not line.startswith(b"data:"):
                continue
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return reply
            text, is_last = _take(data, reply)
            is_over |= is_last
            n_chars += len(text)
            if n_chars > MAX_TEXT_CHARS:
                raise RemoteError(f"{self.endpoint.host} does not stop talking")
            if text:
                on_text(text)
        if self._is_stopped:
            return RemoteReply("cancelled", reply.n_prompt, reply.n_generated)
        if not is_over:
            raise RemoteError(f"{self.endpoint.host} broke off in the middle of the reply")
        return reply


def _take(data: bytes, reply: RemoteReply) -> tuple[str, bool]:
    """(text, whether the reply is over) of an event. Raises: RemoteError."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise RemoteError("The remote model sent something that is no JSON") from None
    if not isinstance(said, dict):
        return "", False
    if said.get("error"):
        raise RemoteError(f"The remote model failed: {_message(said)}")
    usage = said.get("usage")
    if isinstance(usage, dict):
        reply.n_prompt, reply.n_generated = (_count(usage.get(k)) for k in ("prompt_tokens", "completion_tokens"))
    choices = said.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return "", False
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else None
    reason = choice.get("finish_reason")
    if reason == "length":
        reply.finish = "length"
    return (text if isinstance(text, str) else ""), isinstance(reason, str)


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 40 else 0


def _reason(response: http.client.HTTPResponse) -> str:
    known = {401: "the key is missing or wrong", 403: "the key does not allow it", 404: "no such model or address",
             429: "too many requests at once"}  # fmt: skip
    if response.status in known:
        return known[response.status]
    try:
        said = json.loads(response.read(MAX_ERROR_BYTES))
    except (ValueError, RecursionError):
        said = {}
    return f"HTTP {response.status} {_message(said if isinstance(said, dict) else {})}".rstrip()


def _message(said: Mapping[str, object]) -> str:
    error = said.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message or "").split())[:300]
