"""What can go wrong while something is fetched, each a sentence for a person."""

from __future__ import annotations


class FetchError(Exception):
    """Fetching has ended; what was fetched is kept for the next attempt unless it was wrong."""


class RefusedError(FetchError):
    """The server will not give the file, now or ever.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        if self.status in (401, 403):
            return "The server wants an account that may have this file: its terms may have to be accepted first"
        if self.status in (404, 410):
            return "The server does not have this file any more"
        return f"The server refused: HTTP {self.status}"


class LostError(FetchError):
    """The network failed too often."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"The connection was lost: {self.reason}. What has arrived is kept"


class LyingServerError(FetchError):
    """The server sent something else than it said."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"The server sent something else than it announced: {self.reason}"


class WrongHashError(FetchError):
    """The file arrived, but is not the one that was announced."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected, self.got = expected, got

    def __str__(self) -> str:
        return f"The file that arrived is damaged and was thrown away: its SHA-256 is {self.got}, not {self.expected}"


class NoRoomError(FetchError):
    """The disk is too full."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(needed, free)
        self.needed, self.free = needed, free

    def __str__(self) -> str:
        return (
            f"The disk has no room for it: {self.needed / 2**20:,.0f} MB are needed, {self.free / 2**20:,.0f} MB free"
        )
