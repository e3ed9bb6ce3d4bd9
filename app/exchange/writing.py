"""Writes chats to a file: which kind, the end of its name tells. A file is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from PySide6.QtCore import QBuffer, QMarginsF
from PySide6.QtGui import QPageLayout, QPageSize, QPdfWriter, QTextDocument

from app.exchange.errors import ExchangeError
from app.exchange.own import own_lines
from app.exchange.pages import html_page, markdown_page
from app.storage.records import ChatTree

SUFFIXES = (".md", ".html", ".pdf", ".jsonl")
MARGIN_MM = 18.0


def write_file(path: Path, trees: tuple[ChatTree, ...]) -> None:
    """Write chats: Markdown, HTML or PDF of the branch that is shown, or JSON Lines of all.

    Raises: ExchangeError: where the kind is not known or the file cannot be written.
    Thread: any, in a program with a QGuiApplication.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ExchangeError("The name has to end with " + ", ".join(SUFFIXES[:-1]) + f" or {SUFFIXES[-1]}.")
    if suffix == ".pdf":
        write_whole(path, _pdf(trees))
    elif suffix == ".html":
        write_whole(path, html_page(trees).encode())
    elif suffix == ".md":
        write_whole(path, markdown_page(trees).encode())
    else:
        write_whole(path, "".join(own_lines(trees)).encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all.

    Raises: ExchangeError: where it cannot be written.
    """
    half = ""
    try:
        handle, half = tempfile.mkstemp(prefix=".causerie-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(half, path)
    except OSError as error:
        Path(half).unlink(missing_ok=True) if half else None
        raise ExchangeError(f"It cannot be written: {error.strerror}.") from error


def document_of(trees: tuple[ChatTree, ...]) -> QTextDocument:
    """Return chats as a document to print."""
    document = QTextDocument()
    document.setHtml(html_page(trees))
    return document


def _pdf(trees: tuple[ChatTree, ...]) -> bytes:
    buffer = QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setPageLayout(
        QPageLayout(
            *(QPageSize(QPageSize.PageSizeId.A4), QPageLayout.Orientation.Portrait),
            *(QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM), QPageLayout.Unit.Millimeter),
        )
    )
    writer.setTitle(trees[0].chat.title if len(trees) == 1 else "Causerie")
    document_of(trees).print_(writer)
    del writer  # writes the end
    return bytes(buffer.data().data())
