"""A remote model as a small file among the others: where it is and what it is called there. Its key is not in it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

SUFFIX = ".remote.json"
MAX_FILE_BYTES = 64 * 1024
N_CTX_DEFAULT = 32768
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class EndpointError(ValueError):
    """An address or a file that is none of a remote model; its text is a sentence."""


@dataclass(frozen=True, slots=True)
class RemoteEndpoint:
    """Where a remote model is.

    Attributes:
        url: of the API, up to and with "/v1".
        model: its name there.
        n_ctx: tokens that it is taken to hold.

    Raises: EndpointError: no such address; text in the open to another computer.
    """

    url: str
    model: str
    n_ctx: int = N_CTX_DEFAULT

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            host = parts.hostname or ""
            _ = parts.port
        except ValueError as error:
            raise EndpointError(f"{self.url[:200]} is no address: {error}") from None
        if parts.scheme not in ("http", "https") or not host or not self.url.isprintable() or " " in self.url:
            raise EndpointError("The address has to begin with https:// or http:// and name a computer")
        if parts.username or parts.password:
            raise EndpointError("The address must not have a password in it: there is a field for the key")
        if not self.model or len(self.model) > 300 or not self.model.isprintable():
            raise EndpointError("The model needs the name that it has there")
        if not 1 <= self.n_ctx <= 1 << 30:
            raise EndpointError("The context has to have a token or more")

    @property
    def host(self) -> str:
        """The computer that it is on."""
        return urlsplit(self.url).netloc

    @property
    def name(self) -> str:
        """What people read wherever the model is named: the computer too, so that nobody takes it for one of here."""
        return f"{self.model} ({self.host})"

    @property
    def is_elsewhere(self) -> bool:
        """Whether text leaves this computer."""
        return urlsplit(self.url).hostname not in LOOPBACK_HOSTS

    @property
    def mark(self) -> str:
        """What a person has to know."""
        if self.is_elsewhere:
            return (
                f"Text leaves this computer: it goes to {self.host}. Nothing is known here of its context and its cost."
            )
        return f"Another program on this computer answers, at {self.host}; its context and cost are not known here."


def load_endpoint(path: Path) -> RemoteEndpoint:
    """Read a file. Raises: EndpointError: it is none; OSError."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise EndpointError("The file is too large for a remote model")
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        url, model, n_ctx = said["url"], said["model"], said.get("n_ctx", N_CTX_DEFAULT)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise EndpointError("The file does not say where the remote model is") from None
    if not isinstance(url, str) or not isinstance(model, str) or type(n_ctx) is not int:
        raise EndpointError("The file does not say where the remote model is")
    return RemoteEndpoint(url, model, n_ctx)


def save_endpoint(endpoint: RemoteEndpoint, folder: Path) -> Path:
    """Write a file among the models; returns its path. Raises: OSError."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{endpoint.model} at {endpoint.host}").strip("-.")[:120]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{SUFFIX}"
    path.write_text(json.dumps(asdict(endpoint), indent=1), encoding="utf-8")
    return path
