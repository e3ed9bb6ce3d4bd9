"""Listening: the socket, uvicorn, and everything that a server needs of a model."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import uvicorn

from engine.context.core import Context
from engine.embedding import Embedder
from engine.errors import ParamError
from engine.model import Model
from engine.prompt import PromptBuilder
from engine.scheduler import Scheduler
from engine.server.app import make_app
from engine.server.config import ServerConfig
from engine.server.served import Served

BACKLOG = 128
GRACE_S = 3


class Server:
    """A server that listens and answers once it runs.

    Args:
        ctx: of the model; used by nobody else until `run` has returned, and closed by its owner then.

    Attributes:
        url: where it can be reached.

    Raises: OSError: the port is taken; ParamError: no such address.
    """

    def __init__(self, model: Model, ctx: Context, config: ServerConfig) -> None:
        self._socket = _listen(config.host, config.port)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        served = Served(
            model=model,
            scheduler=Scheduler(ctx, config.n_queue_max),
            embedder=Embedder(model),
            config=config,
            prompts=PromptBuilder(model.chat_template, model.tokenizer),
            text_thread=ThreadPoolExecutor(1, thread_name_prefix="text"),
        )
        uvicorn_config = uvicorn.Config(
            make_app(served),
            log_level="warning",
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            ws="none",
            http="h11",
            timeout_graceful_shutdown=GRACE_S,
        )
        self._uvicorn = _Uvicorn(uvicorn_config, served)

    def run(self) -> None:
        """Answer until `stop`, or a signal where this is the main thread."""
        with self._socket:
            self._uvicorn.run(sockets=[self._socket])

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return self._uvicorn.started

    def stop(self) -> None:
        """Let `run` return soon. Thread: any."""
        self._uvicorn.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Ends the jobs before it waits for their streams to end."""

    def __init__(self, config: uvicorn.Config, served: Served) -> None:
        super().__init__(config)
        self._served = served

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything."""
        await asyncio.to_thread(self._served.close)
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise ParamError(f"{host}: {error.strerror}") from None
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)
