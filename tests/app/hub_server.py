"""A hub of our own over HTTP: ranges, redirects, ETags; and slow, broken, lying and cut connections."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class Behaviour:
    """How the hub behaves from now on.

    Attributes:
        statuses: answered first, one for each request.
        cuts: after so many bytes of the body the connection is cut, one for each request.
        wait_s: before each 64 KB.
        is_stalled: nothing comes after the head.
        ignores_ranges, has_no_length, has_no_etag: as older servers do.
        extra: bytes sent beyond the file.
        said_size: announced instead of the true one.
        wrong_range: a part begins so many bytes further than asked for.
        encoding: announced.
        token: needed on the hub's own host; a redirect with it elsewhere is a fault.
    """

    statuses: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    wait_s: float = 0.0
    is_stalled: bool = False
    ignores_ranges: bool = False
    has_no_length: bool = False
    has_no_etag: bool = False
    extra: bytes = b""
    said_size: int = -1
    wrong_range: int = 0
    encoding: str = ""
    token: str = ""


@dataclass(slots=True)
class Hub:
    """Files by path, and what was asked."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    api: dict[str, object] = field(default_factory=dict)
    behaviour: Behaviour = field(default_factory=Behaviour)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    n_sent: int = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of files; `/to/...` redirects to the same path on another name of this host."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def end_headers(self) -> None:
        """Every connection is for one request, so that no thread waits for another."""
        self.send_header("Connection", "close")
        super().end_headers()

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, has_body: bool) -> None:
        hub, how = self.hub, self.hub.behaviour
        asked = self.headers.get("Range", "")
        hub.requests.append((self.path, asked, self.headers.get("Authorization", "")))
        if how.statuses:
            self._short(how.statuses.pop(0))
            return
        path = self.path.partition("?")[0]
        if path in hub.api:
            self._send_json(hub.api[path], has_body)
            return
        if path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", hub.url(path.removeprefix("/to"), "localhost"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if how.token and self.headers.get("Authorization") != f"Bearer {how.token}":
            self._short(401)
            return
        data = hub.files.get(path)
        if data is None:
            self._short(404)
            return
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        begin, end = 0, len(data)
        is_same = self.headers.get("If-Range", etag) == etag
        if asked and is_same and not how.ignores_ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first) + how.wrong_range, int(last) + 1 if last else len(data)
            self.send_response(206)
            total = how.said_size if how.said_size >= 0 else len(data)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{total}")
        else:
            self.send_response(200)
        body = data[begin:end] + how.extra
        if not how.has_no_length:
            said = how.said_size if how.said_size >= 0 and begin == 0 else len(body)
            self.send_header("Content-Length", str(said))
        if not how.has_no_etag:
            self.send_header("ETag", etag)
        if how.encoding:
            self.send_header("Content-Encoding", how.encoding)
        self.end_headers()
        if has_body:
            self._send(body)

    def _send(self, body: bytes) -> None:
        how = self.hub.behaviour
        cut = how.cuts.pop(0) if how.cuts else -1
        with suppress(OSError):
            for at in range(0, len(body), 1 << 16):
                while how.is_stalled:
                    time.sleep(0.02)
                time.sleep(how.wait_s)
                data = body[at : at + (1 << 16)]
                if 0 <= cut < at + len(data):
                    self.wfile.write(data[: max(cut - at, 0)])
                    self.close_connection = True
                    return
                self.wfile.write(data)
                self.hub.n_sent += len(data)

    def _short(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_json(self, value: object, has_body: bool) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            self.wfile.write(body)


@contextmanager
def hub_running() -> Iterator[Hub]:
    """A hub on a free port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="hub")
    thread.start()
    try:
        yield hub
    finally:
        hub.behaviour.is_stalled = False
        server.shutdown()
        server.server_close()
        thread.join()
