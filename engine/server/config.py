"""What a server may be told: where it listens, who may use it, what it allows.

Made by `engine.cli.serve`, read by the other files here.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ParamError

LOOPBACK_NAMES = ("localhost", "localhost.")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to serve.

    Attributes:
        host, port: where to listen; port 0: any free one.
        api_key: what clients have to show; "": nothing.
        allowed_hosts: further names that this computer may be called by.
        allowed_origins: web pages that may use the server, as "https://example.org"; none by default.
        alias: the model's name for clients; "": its own.
        slot_save_path: folder of saved slots; None: slots are not saved.
        context_shift: let the oldest turns leave when the context is full, instead of ending the reply.
        n_cache_reuse: chunks behind an edit of at least so many tokens are moved instead of computed again; 0: none.
        n_queue_max: requests that may wait.
        max_body_bytes: of a request.

    Raises: ParamError: other computers could use it without a key, or a value that cannot be.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    alias: str = ""
    slot_save_path: Path | None = None
    context_shift: bool = False
    n_cache_reuse: int = 0
    n_queue_max: int = 64
    max_body_bytes: int = 16 * 2**20

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.api_key:
            raise ParamError(f"{self.host}: other computers could use the server; that needs a key (--api-key-file)")
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ParamError("the key may have printable ASCII characters only")
        if self.slot_save_path is not None and not self.slot_save_path.is_dir():
            raise ParamError(f"{self.slot_save_path}: no such folder")
        if "*" in self.allowed_origins and not self.api_key:
            raise ParamError("every web page could use the server; that needs a key (--api-key-file)")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this computer only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES
