"""The GUI thread's side of fetching models: one thread asks the hub, one fetches files.

`app.fetch` does the work; nothing here asks the network before a person does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.fetch.errors import FetchError
from app.fetch.hub import ENDPOINT, Hub, HubChoice
from app.fetch.transfer import Progress, Transfer


@dataclass(frozen=True, slots=True)
class FetchJob:
    """Fetch all parts of a choice into a folder."""

    choice: HubChoice
    folder: Path


@dataclass(frozen=True, slots=True)
class FetchState:
    """What has become of a fetch.

    Attributes:
        name: of the file.
        state: "running", "done", "paused" or "failed".
        progress: while it runs; path: of the first part once it is done; problem: why it failed.
    """

    name: str
    state: str
    progress: Progress | None = None
    path: Path | None = None
    problem: str = ""


class HubWorker(QObject):
    """Asks the hub.

    Signals:
        searched(list of HubModel), listed(repo, list of HubChoice), failed(sentence).

    Thread: the hub thread.
    """

    searched = Signal(object)
    listed = Signal(str, object)
    failed = Signal(str)

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint

    def on_search_requested(self, text: str) -> None:
        """Look for models."""
        try:
            self.searched.emit(Hub(self._endpoint).search(text))
        except FetchError as error:
            self.failed.emit(str(error))

    def on_list_requested(self, repo: str) -> None:
        """Look for the files of one."""
        try:
            self.listed.emit(repo, Hub(self._endpoint).choices(repo))
        except FetchError as error:
            self.failed.emit(str(error))


class FetchWorker(QObject):
    """Fetches one choice after the other.

    Signals:
        changed(FetchState)

    Thread: the fetch thread.
    """

    changed = Signal(object)

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop

    def on_fetch_requested(self, job: FetchJob) -> None:
        """Fetch it, part by part; what is there of an earlier attempt is used."""
        name, n_before, n_total = job.choice.name, 0, job.choice.size_bytes

        def tell(progress: Progress) -> None:
            n_done = n_before + progress.n_done
            total = n_total or n_before + progress.n_total
            left_s = (total - n_done) / progress.bytes_s if progress.bytes_s else 0.0
            self.changed.emit(FetchState(name, "running", Progress(n_done, total, progress.bytes_s, left_s)))

        try:
            for file_name, remote in job.choice.parts:
                target = job.folder / file_name
                if not target.exists():
                    transfer = Transfer(
                        remote, target, on_progress=tell, is_cancelled=self._stop.is_set, pause=self._stop.wait
                    )
                    if not transfer.run():
                        self.changed.emit(FetchState(name, "paused"))
                        return
                n_before += target.stat().st_size
            self.changed.emit(FetchState(name, "done", path=job.folder / job.choice.parts[0][0]))
        except (FetchError, OSError) as error:
            problem = str(error) if isinstance(error, FetchError) else error.strerror or str(error)
            self.changed.emit(FetchState(name, "failed", problem=problem))


class FetchClient(QObject):
    """Starts both threads when they are first needed.

    Args:
        endpoint: the hub.

    Signals:
        searched(list of HubModel), listed(repo, list of HubChoice), failed(sentence): of the hub.
        changed(FetchState): of the file that is fetched.

    Thread: GUI thread.
    """

    searched = Signal(object)
    listed = Signal(str, object)
    failed = Signal(str)
    changed = Signal(object)
    _search_requested = Signal(str)
    _list_requested = Signal(str)
    _fetch_requested = Signal(object)

    def __init__(self, endpoint: str = ENDPOINT, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.endpoint = endpoint
        self._stop = threading.Event()
        self._hub, self._fetch = HubWorker(endpoint), FetchWorker(self._stop)
        self._hub_thread, self._fetch_thread = self._thread("hub", self._hub), self._thread("fetch", self._fetch)
        queued = Qt.ConnectionType.QueuedConnection
        self._search_requested.connect(self._hub.on_search_requested, queued)
        self._list_requested.connect(self._hub.on_list_requested, queued)
        self._fetch_requested.connect(self._fetch.on_fetch_requested, queued)
        self._hub.searched.connect(self._on_searched, queued)
        self._hub.listed.connect(self._on_listed, queued)
        self._hub.failed.connect(self._on_failed, queued)
        self._fetch.changed.connect(self._on_changed, queued)

    def search(self, text: str) -> None:
        """Look for models; `searched` or `failed` follows."""
        self._hub_thread.start()
        self._search_requested.emit(text)

    def list_files(self, repo: str) -> None:
        """Look for the files of a model; `listed` or `failed` follows."""
        self._hub_thread.start()
        self._list_requested.emit(repo)

    def fetch(self, choice: HubChoice, folder: Path) -> None:
        """Fetch a file; `changed` tells how it goes."""
        self._stop.clear()
        self._fetch_thread.start()
        self._fetch_requested.emit(FetchJob(choice, folder))

    def pause(self) -> None:
        """Stop fetching; what has arrived is kept."""
        self._stop.set()

    def shutdown(self, timeout_ms: int) -> bool:
        """End the threads; returns whether they ended in time."""
        self._stop.set()
        for thread in (self._hub_thread, self._fetch_thread):
            thread.quit()
        return all([thread.wait(timeout_ms) for thread in (self._hub_thread, self._fetch_thread)])

    def _thread(self, name: str, worker: QObject) -> QThread:
        thread = QThread(self)
        thread.setObjectName(name)
        worker.moveToThread(thread)
        return thread

    def _on_searched(self, found: object) -> None:
        self.searched.emit(found)

    def _on_listed(self, repo: str, choices: object) -> None:
        self.listed.emit(repo, choices)

    def _on_failed(self, problem: str) -> None:
        self.failed.emit(problem)

    def _on_changed(self, state: FetchState) -> None:
        self.changed.emit(state)
