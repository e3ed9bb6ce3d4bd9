"""A server over a tiny model, in threads of this process."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

from engine import ContextParams, create_context, load_model
from engine.server.config import ServerConfig
from engine.server.serving import Server

DATA = Path(__file__).parents[2] / "data"
TINY = DATA / "llama" / "model.gguf"
DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a plain request gave."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found


@dataclass(frozen=True, slots=True)
class Local:
    """A server that runs."""

    server: Server

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.server.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def client(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"{self.server.url}/v1", api_key=key, max_retries=0, timeout=DEADLINE_S)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """A plain request; a body is sent as JSON."""
        connection = http.client.HTTPConnection(*self.address, timeout=DEADLINE_S)
        data = json.dumps(body).encode() if body is not None else raw
        sent = {"content-type": "application/json"} if data is not None else {}
        try:
            connection.request(method, path, data, sent | (headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def post(self, path: str, **fields: object) -> Answer:
        return self.ask("POST", path, fields)

    def metric(self, name: str) -> float:
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"causerie_{name} "))

    def n_busy(self) -> int:
        return sum(slot["is_processing"] for slot in self.ask("GET", "/slots").json)


@contextmanager
def serving(
    config: ServerConfig | None = None, path: Path = TINY, n_slots: int = 4, n_ctx: int = 256, type_k: str = "f32"
) -> Iterator[Local]:
    with load_model(path, n_threads=1) as model:
        params = ContextParams(n_ctx=n_ctx, n_seq_max=n_slots, type_k=type_k, type_v=type_k)
        ctx = create_context(model, params)
        server = Server(model, ctx, config or ServerConfig(port=0))
        thread = threading.Thread(target=server.run, name="server")
        thread.start()
        wait_until(lambda: server.is_ready)
        try:
            yield Local(server)
        finally:
            server.stop()
            thread.join(DEADLINE_S)
            ctx.close()
            assert not thread.is_alive()


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)
