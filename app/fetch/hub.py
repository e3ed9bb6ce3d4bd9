"""What a Hugging Face-compatible hub has: models by name, and the files of one with sizes, hashes and addresses.

Asks through huggingface_hub (the extra `hub`), and only when a person wants it. What the hub answers is checked here; the
files themselves are fetched by `app.fetch.transfer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from app.fetch.errors import FetchError, LostError, LyingServerError, RefusedError
from app.fetch.transfer import RemoteFile

if TYPE_CHECKING:
    from huggingface_hub import HfApi

ENDPOINT = "https://huggingface.co"
N_RESULTS = 30
MAX_FILES = 4096
MAX_NAME = 200
MAX_BYTES = 1 << 50

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q[1-8](?:_[A-Z0-9]+)*|BF16|F16|F32|MXFP4(?:_MOE)?|TQ[12]_0))$", re.IGNORECASE
)


class HubMissingError(FetchError):
    """The package that talks to the hub is not installed."""

    def __str__(self) -> str:
        return "Looking for models needs one more package: pip install 'causerie[hub]'"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the hub.

    Attributes:
        repo: "owner/name".
        is_gated: its terms have to be accepted on the hub's page first.
    """

    repo: str
    n_downloads: int
    is_gated: bool


@dataclass(frozen=True, slots=True)
class HubChoice:
    """One model file to choose, all its parts together.

    Attributes:
        name: of the (first) file.
        quant: its quantisation, as its name says; "" where it does not.
        parts: what to fetch, each with the name it gets here.
    """

    name: str
    quant: str
    parts: tuple[tuple[str, RemoteFile], ...]

    @property
    def size_bytes(self) -> int:
        """Of all parts; 0 where one is not known."""
        sizes = [remote.size_bytes for _, remote in self.parts]
        return sum(sizes) if all(sizes) else 0


class Hub:
    """A hub.

    Args:
        endpoint: where it is.
        token: of a person's account, "" for none.

    Raises: HubMissingError: huggingface_hub is not installed.

    Thread: any, one at a time; every method waits for the network.
    """

    def __init__(self, endpoint: str = ENDPOINT, token: str = "") -> None:
        try:
            from huggingface_hub import HfApi
        except ImportError:
            raise HubMissingError from None
        self.endpoint, self._token = endpoint.rstrip("/"), token
        self._api: HfApi = HfApi(endpoint=self.endpoint, token=token or False)

    def search(self, text: str) -> list[HubModel]:
        """Models with GGUF files whose name has a text, those fetched most first. Raises: FetchError kinds."""
        try:
            found = self._api.list_models(search=text, filter="gguf", sort="downloads", limit=N_RESULTS)
            return [
                HubModel(str(model.id), _whole(model.downloads), bool(getattr(model, "gated", False)))
                for model in islice(found, N_RESULTS)
                if _REPO.fullmatch(str(model.id))
            ]
        except Exception as error:
            raise _told(error) from None

    def choices(self, repo: str) -> list[HubChoice]:
        """The model files of a repository, smallest first. Raises: FetchError kinds."""
        if not _REPO.fullmatch(repo):
            raise LyingServerError(f"a repository named {repo[:100]!r}")
        try:
            info = self._api.model_info(repo, files_metadata=True)
            commit = str(info.sha or "main")
            files = [
                (str(f.rfilename), _whole(f.size), str(f.lfs.sha256 if f.lfs else "")) for f in info.siblings or ()
            ]
        except Exception as error:
            raise _told(error) from None
        if len(files) > MAX_FILES:
            raise LyingServerError(f"{len(files):,} files in one repository")
        return self._choices(repo, commit if _COMMIT.fullmatch(commit) else "main", files)

    def _choices(self, repo: str, commit: str, files: Iterable[tuple[str, int, str]]) -> list[HubChoice]:
        from huggingface_hub import hf_hub_url

        groups: dict[str, list[tuple[str, RemoteFile]]] = {}
        for path, size, sha256 in files:
            name = safe_name(path)
            if name is None or name.lower().startswith("mmproj"):
                continue
            remote = RemoteFile(
                hf_hub_url(repo, path, revision=commit, endpoint=self.endpoint),
                size if 0 < size < MAX_BYTES else 0,
                sha256 if _SHA256.fullmatch(sha256) else "",
            )
            folder = str(PurePosixPath(path).parent)
            groups.setdefault(f"{folder}/{_SHARD.sub('', name[: -len('.gguf')])}", []).append((name, remote))
        choices = []
        for parts in groups.values():
            parts.sort(key=lambda part: part[0])
            choices.append(HubChoice(parts[0][0], quant_of(parts[0][0]), tuple(parts)))
        return sorted(choices, key=lambda choice: (choice.size_bytes, choice.name))


def safe_name(path: str) -> str | None:
    """The name that a file of the hub gets here; None for one that is no model, or would go somewhere else."""
    name = PurePosixPath(path).name
    is_plain = (
        name == name.strip()
        and name.isprintable()
        and not set(name) & set('<>:"/\\|?*')
        and ".." not in path.split("/")
    )
    if not is_plain or not name.lower().endswith(".gguf") or name.startswith(".") or len(name.encode()) > MAX_NAME:
        return None
    return name


def quant_of(name: str) -> str:
    """The quantisation that a file's name ends with."""
    found = _QUANT.search(_SHARD.sub("", name[: -len(".gguf")]))
    return found[1].upper() if found else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _told(error: Exception) -> FetchError:
    """What is wrong, whatever the package raised: it does not check what the hub answers."""
    if isinstance(error, FetchError):
        return error
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in (401, 403, 404, 410):
        return RefusedError(status)
    if isinstance(error, OSError) or type(error).__module__.startswith(("httpx", "httpcore")):
        return LostError(" ".join(str(error).split())[:200] or type(error).__name__)
    return LyingServerError(f"an answer that cannot be read ({type(error).__name__})")
