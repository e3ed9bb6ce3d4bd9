"""Fetching from servers of all kinds, killed and resumed, to the right hash or to a sentence."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.fetch import transfer
from app.fetch.errors import FetchError, LostError, LyingServerError, NoRoomError, RefusedError, WrongHashError
from app.fetch.journal import PIECE_BYTES, Journal
from app.fetch.transfer import Progress, RemoteFile, Transfer, journal_path, repair
from tests.app.hub_server import Behaviour, Hub, hub_running
from tests.models import ROOT

DATA = random.Random(0).randbytes(2 * PIECE_BYTES + 123_457)
SHA256 = hashlib.sha256(DATA).hexdigest()
PATH = "/org/repo/resolve/main/model.gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_running() as running:
        running.files[PATH] = DATA
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "Modelle ü" / "model.gguf"


def remote(hub: Hub, path: str = PATH, size: int = len(DATA), sha256: str = SHA256) -> RemoteFile:
    return RemoteFile(hub.url(path), size, sha256)


def fetch(what: RemoteFile, target: Path, **more: object) -> bool:
    params = {"pause": lambda s: None, "timeout_s": 5.0} | more
    return Transfer(what, target, **params).run()  # type: ignore[arg-type]


def part(target: Path) -> Path:
    return target.with_name("model.gguf.part")


def test_a_file_arrives_whole_and_is_none_before(hub: Hub, target: Path) -> None:
    seen: list[Progress] = []

    def look(progress: Progress) -> None:
        assert target.exists() == (progress is seen[-1] if seen else False) or not seen or progress.n_done == len(DATA)
        seen.append(progress)

    assert fetch(remote(hub), target, on_progress=look)
    assert target.read_bytes() == DATA
    assert seen[-1].n_done == seen[-1].n_total == len(DATA)
    assert sorted(os.listdir(target.parent)) == [".model.gguf.journal", "model.gguf"]
    journal = Journal.load(journal_path(target))
    assert journal is not None
    assert journal.check(target) == [True] * 3


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(cuts=[0, 1, 100_000, PIECE_BYTES + 5, 3_000_000]),
        Behaviour(statuses=[503, 429, 500]),
        Behaviour(ignores_ranges=True, cuts=[100_000, 5_000_000]),
        Behaviour(has_no_length=True),
        Behaviour(has_no_etag=True, cuts=[PIECE_BYTES + 1]),
    ],
    ids=["cut", "busy", "no ranges", "no length", "no etag"],
)
def test_bad_connections_are_lived_through(hub: Hub, target: Path, behaviour: Behaviour) -> None:
    hub.behaviour = behaviour
    assert fetch(remote(hub), target)
    assert target.read_bytes() == DATA


def test_nothing_is_fetched_twice_after_a_cut(hub: Hub, target: Path) -> None:
    hub.behaviour = Behaviour(cuts=[1_000_000, 2_000_000])
    assert fetch(remote(hub), target)
    assert [asked for _, asked, _ in hub.requests] == ["", "bytes=1000000-", "bytes=3000000-"]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Behaviour(statuses=[401]), RefusedError),
        (Behaviour(statuses=[404]), RefusedError),
        (Behaviour(statuses=[503] * 9), LostError),
        (Behaviour(cuts=[0] * 9), LostError),
        (Behaviour(extra=b"more", has_no_length=True), LyingServerError),
        (Behaviour(said_size=12), LyingServerError),
        (Behaviour(encoding="gzip"), LyingServerError),
        (Behaviour(cuts=[PIECE_BYTES], wrong_range=1), LyingServerError),
    ],
    ids=["no account", "gone", "busy", "cut", "too much", "another size", "compressed", "another part"],
)
def test_servers_that_fail_or_lie_end_in_a_sentence(
    hub: Hub, target: Path, behaviour: Behaviour, error: type[FetchError]
) -> None:
    hub.behaviour = behaviour
    with pytest.raises(error) as caught:
        fetch(remote(hub), target)
    assert "\n" not in str(caught.value)
    assert not target.exists()


def test_another_content_is_thrown_away(hub: Hub, target: Path) -> None:
    hub.files[PATH] = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with pytest.raises(WrongHashError):
        fetch(remote(hub), target)
    assert os.listdir(target.parent) == []
    hub.files[PATH] = DATA
    assert fetch(remote(hub), target)


def test_a_stalled_server_counts_as_lost(hub: Hub, target: Path) -> None:
    hub.behaviour.is_stalled = True
    with pytest.raises(LostError, match="timed out"):
        fetch(remote(hub), target, timeout_s=0.05)


def test_cancelled_and_resumed(hub: Hub, target: Path) -> None:
    seen = 0

    def is_cancelled() -> bool:
        nonlocal seen
        seen += 1
        return seen > 1.5 * PIECE_BYTES / (1 << 16)

    assert not fetch(remote(hub), target, is_cancelled=is_cancelled)
    assert part(target).exists()
    assert not target.exists()
    hub.requests.clear()
    assert fetch(remote(hub), target)
    assert [asked for _, asked, _ in hub.requests] == [f"bytes={PIECE_BYTES}-"]
    assert target.read_bytes() == DATA


def test_a_new_version_at_the_source_starts_anew(hub: Hub, target: Path) -> None:
    hub.behaviour.cuts = [PIECE_BYTES + 1000] + [0] * 9
    with pytest.raises(LostError):
        fetch(RemoteFile(hub.url(PATH)), target)
    hub.behaviour.cuts = []
    hub.files[PATH] = DATA[::-1]
    assert fetch(RemoteFile(hub.url(PATH)), target)
    assert target.read_bytes() == DATA[::-1]


@pytest.mark.parametrize("damage", ["part", "journal", "half line", "another url"])
def test_what_is_there_is_not_trusted(hub: Hub, target: Path, damage: str) -> None:
    hub.behaviour.cuts = [PIECE_BYTES + 1000] + [0] * 9
    with pytest.raises(LostError):
        fetch(remote(hub), target)
    hub.behaviour.cuts = []
    journal = journal_path(target)
    if damage == "part":
        with part(target).open("r+b") as file:
            file.write(b"damage")
    elif damage == "journal":
        journal.write_bytes(b"\xff{")
    elif damage == "half line":
        journal.write_text(journal.read_text()[:-5])
    else:
        journal.write_text(journal.read_text().replace("/main/", "/other/"))
    hub.requests.clear()
    assert fetch(remote(hub), target)
    assert hub.requests[0][1] == ""
    assert target.read_bytes() == DATA


def test_a_token_goes_to_its_host_only(hub: Hub, target: Path) -> None:
    assert fetch(remote(hub, f"/to{PATH}"), target, token="secret")
    assert [token for _, _, token in hub.requests] == ["Bearer secret", ""]
    target.unlink()
    hub.behaviour.token = "secret"
    with pytest.raises(RefusedError, match="account"):
        fetch(remote(hub), target)
    assert fetch(remote(hub), target, token="secret")


def test_only_the_web_is_asked(target: Path) -> None:
    for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"):
        with pytest.raises(LyingServerError):
            fetch(RemoteFile(url), target)


def test_a_full_disk_is_said_before(hub: Hub, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, len(DATA)))
    with pytest.raises(NoRoomError):
        fetch(remote(hub), target)
    assert part(target).stat().st_size == 0


def damaged(target: Path, places: list[int]) -> None:
    data = bytearray(target.read_bytes())
    for place in places:
        data[place] ^= 1
    target.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "n_fetched"),
    [
        (lambda target: damaged(target, [PIECE_BYTES + 7]), PIECE_BYTES),
        (lambda target: damaged(target, [0, len(DATA) - 1]), PIECE_BYTES + 123_457),
        (lambda target: target.write_bytes(DATA[:100]), len(DATA)),
        (lambda target: target.write_bytes(DATA + b"more"), 0),
        (lambda target: None, 0),
        (lambda target: journal_path(target).unlink(), len(DATA)),
        (lambda target: target.unlink(), len(DATA)),
    ],
    ids=["middle", "both ends", "cut off", "too long", "sound", "no journal", "gone"],
)
def test_repair_fetches_what_differs(hub: Hub, target: Path, harm: Callable[[Path], object], n_fetched: int) -> None:
    assert fetch(remote(hub), target)
    harm(target)
    hub.n_sent = 0
    assert repair(target, remote(hub)) == n_fetched
    assert target.read_bytes() == DATA


def test_a_repair_with_another_version_changes_nothing(hub: Hub, target: Path) -> None:
    assert fetch(remote(hub), target)
    damaged(target, [5])
    hub.files[PATH] = DATA[::-1]
    before = target.read_bytes()
    with pytest.raises(FetchError):
        repair(target, remote(hub))
    assert target.read_bytes() == before


PROGRAM = """
import sys
from pathlib import Path
from app.fetch.transfer import RemoteFile, Transfer
Transfer(RemoteFile(sys.argv[1], int(sys.argv[2]), sys.argv[3]), Path(sys.argv[4])).run()
"""


def wait_for(hub: Hub, n_sent: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while hub.n_sent < n_sent and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_again_and_again_and_resumed_to_the_right_hash(hub: Hub, target: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, hub.url(PATH), str(len(DATA)), SHA256, str(target)]
    hub.behaviour.wait_s = 0.002
    for n_more in (1_000_000, PIECE_BYTES + 2_000_000, 100_000, PIECE_BYTES // 2):
        process = subprocess.Popen(command, cwd=ROOT)
        limit = hub.n_sent + n_more
        wait_for(hub, limit, process)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not target.exists()
    hub.behaviour.wait_s = 0.0
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 0
    assert hashlib.sha256(target.read_bytes()).hexdigest() == SHA256
    assert any(asked for _, asked, _ in hub.requests)


def test_constants_are_what_the_tests_assume() -> None:
    assert transfer.N_ATTEMPTS < 9
