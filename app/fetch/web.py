"""One request for a part of a file: redirects followed, what is answered checked before a byte is used."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.fetch.errors import LyingServerError, RefusedError

CHUNK_BYTES = 1 << 16
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; a token goes to the host it is for and to no other, and nothing goes from TLS to plain text."""

    def redirect_request(
        self, req: urllib.request.Request, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> urllib.request.Request | None:
        """The request that follows."""
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise LyingServerError(f"a redirect to {new.scheme or 'nothing'}")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        token = req.unredirected_hdrs.get("Authorization")
        if following is not None and token and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            following.add_unredirected_header("Authorization", token)
        return following


@dataclass(slots=True)
class Answer:
    """What the server gives.

    Attributes:
        begin: offset of the first byte that comes.
        size_bytes: of the whole file; 0 where the server does not say.
        etag: a strong one, or "".
    """

    begin: int
    size_bytes: int
    etag: str
    response: http.client.HTTPResponse

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come. Raises: OSError, http.client.HTTPException: the connection failed."""
        while data := self.response.read1(CHUNK_BYTES):
            yield data

    def close(self) -> None:
        """Let go of the connection."""
        self.response.close()


def ask(url: str, begin: int, end: int, etag: str, token: str, timeout_s: float) -> Answer:
    """Ask for a file from a byte on.

    Args:
        begin: the first byte wanted.
        end: the one behind the last, 0 for all.
        etag: of the version that begins what is there already; with another one the whole file comes.
        token: for the server that the URL names, "" for none.

    Raises:
        RefusedError, LyingServerError: no use trying again.
        OSError, http.client.HTTPException: the network; try again.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise LyingServerError(f"an address that is none of the web: {url[:100]}")
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "causerie"})
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if begin or end:
        request.add_header("Range", f"bytes={begin}-{end - 1 if end else ''}")
        if etag:
            request.add_header("If-Range", etag)
    try:
        response = urllib.request.build_opener(_Redirects).open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in RETRY_STATUSES:
            raise ConnectionError(f"HTTP {error.code}") from None
        raise RefusedError(error.code) from None
    try:
        return _checked(response, begin)
    except BaseException:
        response.close()
        raise


def _checked(response: http.client.HTTPResponse, begin: int) -> Answer:
    etag = response.headers.get("ETag", "")
    etag = "" if etag.startswith("W/") else etag
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise LyingServerError("a compressed file")
    if response.status == 206:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != begin:
            raise LyingServerError("another part than the one asked for")
        return Answer(begin, 0 if found[3] == "*" else int(found[3]), etag, response)
    if response.status != 200:
        raise RefusedError(response.status)
    length = response.headers.get("Content-Length", "")
    return Answer(0, int(length) if length.isdigit() and len(length) < 19 else 0, etag, response)
