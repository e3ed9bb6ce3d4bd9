"""What a file that cannot be taken in is told with."""

from __future__ import annotations


class ExchangeError(ValueError):
    """A file is not what it should be; the message is a sentence for a person."""
