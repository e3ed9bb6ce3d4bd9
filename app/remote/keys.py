"""Keys of remote models: in the system's keyring where there is one (the extra `keys`), else for this run only."""

from __future__ import annotations

import logging
import threading

log = logging.getLogger(__name__)

SERVICE = "causerie"
_lock = threading.Lock()
_this_run: dict[str, str] = {}


def keep_key(url: str, key: str) -> bool:
    """Remember the key of an endpoint; returns whether it will be known after this run."""
    with _lock:
        _this_run[url] = key
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return False
    try:
        keyring.set_password(SERVICE, url, key)
    except (KeyringError, RuntimeError, OSError) as error:
        log.info("no keyring: %s", type(error).__name__)
        return False
    return True


def key_of(url: str) -> str:
    """The key of an endpoint, "" where none is known."""
    with _lock:
        if url in _this_run:
            return _this_run[url]
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return ""
    try:
        return keyring.get_password(SERVICE, url) or ""
    except (KeyringError, RuntimeError, OSError):
        return ""
