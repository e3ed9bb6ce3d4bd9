"""Who may use the server: checked for every request before anything else looks at it.

A web page in the browser of the same computer can send requests here, also under a name of its own that it lets point to
127.0.0.1. So the name in `Host` has to be one of ours, and a request that a page sent has to be of an allowed page.
"""

from __future__ import annotations

import hmac
import ipaddress

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.server.answers import error_response
from engine.server.config import LOOPBACK_NAMES, ServerConfig

OPEN_PATHS = ("/health", "/v1/health")
"""Need no key: they only say that somebody is there."""
ALLOWED_HEADERS = "authorization, content-type"
ALLOWED_METHODS = "GET, POST, OPTIONS"


class Guard:
    """ASGI middleware that refuses what is not allowed."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app, self._config = app, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        refusal = self._refusal(scope, headers, origin)
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer["access-control-allow-origin"] = origin
                answer["vary"] = "Origin"
            await send(message)

        if origin and scope["method"] == "OPTIONS":
            preflight = PlainTextResponse("", headers={
                "access-control-allow-methods": ALLOWED_METHODS, "access-control-allow-headers": ALLOWED_HEADERS,
            })  # fmt: skip
            await preflight(scope, receive, send_with_origin)
        else:
            await self._app(scope, receive, send_with_origin if origin else send)

    def _refusal(self, scope: Scope, headers: Headers, origin: str) -> Response | None:
        if not self._is_our_name(headers.get("host", "")):
            return error_response(403, "the Host header names another computer", code="host_not_allowed")
        if not self._is_allowed_page(headers, origin):
            return error_response(403, "web pages may not use this server", code="origin_not_allowed")
        is_open = scope["path"] in OPEN_PATHS or (origin and scope["method"] == "OPTIONS")
        if self._config.api_key and not is_open and not self._has_key(headers):
            return error_response(401, "a valid key is needed", kind="authentication_error", code="invalid_api_key")
        return None

    def _is_our_name(self, host: str) -> bool:
        """Whether `Host` is an address, or a name that is known to be ours: a page can only choose names."""
        name = host.rsplit(":", 1)[0] if host.rpartition("]")[2].count(":") else host
        name = name.lower()
        if name in LOOPBACK_NAMES or name in self._config.allowed_hosts or name == self._config.host.lower():
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    def _is_allowed_page(self, headers: Headers, origin: str) -> bool:
        if origin:
            return origin in self._config.allowed_origins or "*" in self._config.allowed_origins
        # A picture or a link of another page has no Origin; browsers say so in another way.
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        is_equal = hmac.compare_digest(key.strip().encode(), self._config.api_key.encode())
        return scheme.lower() == "bearer" and is_equal
