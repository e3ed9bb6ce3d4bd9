"""Builds the parts of the program and connects them; the only place that knows them all."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QCoreApplication, QMessageLogContext, QObject, Qt, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication, QMessageBox

from app.bridge.catalogue_client import CatalogueClient
from app.bridge.client import EngineClient, local_engine
from app.bridge.fetch_client import FetchClient
from app.bridge.places import default_model
from app.bridge.port import ChatEngine
from app.exchange.client import ExchangeClient
from app.garbage import GarbageCollector
from app.launch import HEADLESS_PLATFORMS
from app.models import ChatController
from app.quit_signals import QuitSignals
from app.settings import Settings
from app.single_instance import SingleInstance
from app.storage.client import StorageClient
from app.storage.sessions import FOLDER_NAME
from app.theme import Theme, ThemeMode
from app.windows.fetch_window import FetchWindow
from app.windows.main_window import MainWindow

ENGINE_QUIT_MS = 3500
STORAGE_QUIT_MS = 1000
CATALOGUE_QUIT_MS = 500
MODELS_FOLDER, CHARACTERS_FOLDER = "models", "characters"
"""The three together are the bound on closing."""

LOG_BYTES = 1_000_000

_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
}

log = logging.getLogger(__name__)


class Application(QObject):
    """The program on one data folder, from the first window to the last thread.

    Attributes:
        settings, controller, window: for tests and for who drives the program.

    Thread: GUI thread.
    """

    def __init__(
        self,
        app: QApplication,
        folder: Path,
        make_engine: Callable[[], ChatEngine] = local_engine,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._garbage = GarbageCollector(self)
        self.settings = Settings(folder / "settings.ini", self)
        self._storage = StorageClient(folder, self)
        self._engine = EngineClient(folder / FOLDER_NAME, make_engine, self)
        self._catalogue = CatalogueClient(parent=self)
        self._fetch = FetchClient(self.settings.hub_endpoint, self)
        self._exchange = ExchangeClient(folder / CHARACTERS_FOLDER, self)
        self._folder = folder
        self._fetch_window: FetchWindow | None = None
        self.controller = ChatController(self._engine, self._storage, self.settings, self)
        self._theme = Theme(app, ThemeMode(self.settings.theme), self.settings.zoom / 100, self)
        self.window = MainWindow(self.controller, self.settings, self._theme)
        self._connect()

    def start(self, model: str = "") -> None:
        """Show the window and start the threads; the model loads after the first frame.

        Args:
            model: path of the model to load; "" for the one used last or the default one.
        """
        self.window.show()
        self._storage.start()
        self._engine.start()
        path = model or default_model(self.settings.last_model)
        if path:
            self.controller.load_model(str(path))

    def shutdown(self) -> bool:
        """Stop what runs, save what is in memory and end the threads, within five seconds.

        Returns: whether all threads ended; text is safe in any case.
        """
        self.controller.close()
        # Storage last: what the engine still tells waits in its queue by then.
        is_over = self._engine.shutdown(ENGINE_QUIT_MS)
        is_over &= self._catalogue.shutdown(CATALOGUE_QUIT_MS)
        is_over &= self._exchange.shutdown(CATALOGUE_QUIT_MS)
        is_over &= self._fetch.shutdown(CATALOGUE_QUIT_MS)
        is_over &= self._storage.shutdown(STORAGE_QUIT_MS)
        self._garbage.close()
        return is_over

    def show_window(self) -> None:
        """Bring the window to the front."""
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    def _connect(self) -> None:
        queued = Qt.ConnectionType.QueuedConnection
        # Streamed text goes to storage directly: it is safe however busy the window is.
        self._engine.worker.happened.connect(self._storage.worker.on_engine_event, queued)
        self._engine.happened.connect(self.controller.on_engine_event)
        self._storage.happened.connect(self.controller.on_store_event)
        self._catalogue.found.connect(self.controller.on_models_found)
        self.window.fetch_wanted.connect(self._on_fetch_wanted)
        catalogue = self.controller.catalogue
        catalogue.refresh_requested.connect(self._on_refresh_requested)
        catalogue.details_requested.connect(self._catalogue.describe)
        catalogue.verify_requested.connect(self._catalogue.verify)
        self._catalogue.details_read.connect(catalogue.details_read)
        self._catalogue.verify_progressed.connect(catalogue.verify_progressed)
        self._catalogue.verified.connect(catalogue.verified)

        exchange = self.controller.exchange
        exchange.read_wanted.connect(self._exchange.read)
        exchange.write_wanted.connect(self._exchange.write)
        self._exchange.was_read.connect(exchange.take_trees)
        self._exchange.was_written.connect(self.window.files.on_written)
        self._exchange.failed.connect(self.window.files.on_failed)

    def _on_fetch_wanted(self) -> None:
        """Show the window that gets models; where they go is a folder that the picker lists."""
        if self._fetch_window is None:
            folders = self.settings.model_folders
            if not folders:
                folders = self.settings.model_folders = (str(self._folder / MODELS_FOLDER),)
            self._fetch_window = FetchWindow(
                self._fetch, self.controller.catalogue, Path(folders[0]).expanduser(), self.window
            )
        self._fetch_window.show()
        self._fetch_window.raise_()

    def _on_refresh_requested(self) -> None:
        self._catalogue.scan(self.settings.model_folders)


def run(folder: Path, model: str) -> int:
    """Run the program on a data folder until its window is closed.

    Args:
        folder: where chats, sessions and settings are kept; it is made where it is not there.
        model: path of the model to load, "" for the one used last.

    Returns: the exit status.
    """
    sys.excepthook = _log_exception
    qInstallMessageHandler(_log_qt_message)
    app = QApplication(sys.argv[:1])
    QCoreApplication.setApplicationName("causerie")
    QApplication.setApplicationDisplayName("Causerie")
    QApplication.setDesktopFileName("causerie")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _refuse(app.tr("The data folder cannot be made: {0}").format(error))
    instance = SingleInstance(folder)
    if not instance.acquire():
        if not instance.is_held():
            return _refuse(app.tr("The data folder {0} cannot be written to.").format(folder))
        if instance.ask_first_to_show():
            print("causerie: it is running already; its window was brought to the front.", file=sys.stderr)
            return 0
        return _refuse(app.tr("Another process uses the data folder {0}; close it first.").format(folder))
    handler = _start_log(folder)
    signals = QuitSignals()
    program = Application(app, folder)
    instance.show_requested.connect(program.show_window)
    signals.quit_requested.connect(program.window.close)
    program.start(model)
    status = app.exec()
    program.window.hide()
    is_over = program.shutdown()
    signals.close()
    instance.release()
    qInstallMessageHandler(None)
    sys.excepthook = sys.__excepthook__
    logging.getLogger().removeHandler(handler)
    handler.close()
    if not is_over:
        # A thread that hangs is never terminated, and Qt would abort at its destruction: text and files are whole.
        os._exit(status)
    return status


def _refuse(sentence: str) -> int:
    """Say why the program does not start, in a window too where there is a screen; returns the exit status."""
    print(f"causerie: {sentence}", file=sys.stderr)
    if QApplication.platformName() not in HEADLESS_PLATFORMS:
        QMessageBox.critical(None, "Causerie", sentence)
    return 1


def _start_log(folder: Path) -> logging.Handler:
    handler = logging.handlers.RotatingFileHandler(
        folder / "causerie.log", maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", delay=True
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    return handler


def _log_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Keep what no handler caught, a fault in the program, for who reports it."""
    log.critical("unhandled exception", exc_info=(kind, error, trace))
    sys.__excepthook__(kind, error, trace)


def _log_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    log.log(_QT_LEVELS.get(kind, logging.ERROR), "Qt: %s", message)
