"""A model on the Hugging Face hub.

Its files are in the hub library's own cache (HF_HOME, HF_HUB_CACHE); HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN
mean what they mean to that library. Large files are fetched like an engine.tar, over many connections; the
library fetches the others. Fetching a model that is there downloads nothing; a broken transfer resumes where
it broke off, and the complete files of a failed fetch are kept.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import _cache_commit_hash_for_specific_revision, repo_folder_name
from huggingface_hub.utils._verification import HashAlgo, compute_file_hash
from huggingface_hub.utils.tqdm import tqdm

from builder.sources.hub_cache import belongs
from builder.sources.hub_files import fetch_blob
from builder.sources.hub_limits import (
    AnswerCompressed,
    AnswerTooLong,
    FileTooLong,
    NameRefused,
    check_commit,
    limit_the_hub,
)
from builder.sources.weights import INDEX, indexed, listed
from shared.errors import (
    CogTritonError,
    DownloadFailed,
    ModelCorrupt,
    ModelFilesMissing,
    ModelGated,
    ModelNotFound,
    NotEnoughSpace,
    RevisionNotFound,
)
from shared.http import Unreachable
from shared.proxies import proxy_problem
from shared.secrets import public_address
from shared.sizes import readable
from shared.source import is_web_address
from shared.tls import in_causes, settings_problem, why_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from huggingface_hub.hf_api import RepoSibling

    from shared.progress import StepProgress

limit_the_hub()

_POLL_SECONDS = 0.2
# A pattern's * also matches /: folders hold other forms of the model (original/, onnx/).
_FOLDERS = "*/*"


@dataclass(frozen=True, slots=True)
class HubModel:
    """One revision of one model; `token` None means the one that the library finds itself."""

    name: str
    revision: str | None
    token: str | None = field(repr=False)

    def __post_init__(self) -> None:
        # As the library reads its own: what comes from a file often ends with a newline.
        object.__setattr__(self, "token", (self.token or "").strip() or None)

    def files(self) -> list[str]:
        """The names of all files that the model has. Raises ModelNotFound, ModelGated, RevisionNotFound and
        DownloadFailed.
        """
        try:
            # In one request: the library's own list of files tries again and again, and complains each time.
            info = HfApi(token=self.token).model_info(self.name, revision=self.revision)
        except Exception as error:
            raise self._translated(error) from None
        return [file.rfilename for file in info.siblings or ()]

    def fetch(
        self,
        wanted: Callable[[Collection[str]], list[str]],
        progress: StepProgress,
        accept: Callable[[Mapping[str, int]], None] = lambda _sizes: None,
    ) -> Path:
        """The directory of the model's files, named after its commit. `wanted` gets the names of all files
        that the model has, raises to refuse it, and returns patterns of those to take; what an index among
        these lists is taken, too. `accept` gets the bytes of each and raises to refuse them; offline it is
        not asked.

        Raises what `files` raises, CheckpointInvalid for an index, NotEnoughSpace before any transfer but
        that of an index when the disk is too small, and ModelCorrupt.
        """
        api = HfApi(token=self.token)
        try:
            if constants.is_offline_mode():
                return self._from_cache(api, wanted)
            info = api.model_info(self.name, revision=self.revision, files_metadata=True)
            commit = check_commit(info.sha)
            files = {file.rfilename: file for file in info.siblings or ()}
            patterns = wanted(files)
            taken = {name for name in files if _takes(patterns, name)}
            show = _Arrived(progress)
            if indexes := sorted(name for name in taken if name.endswith(INDEX)):
                path = self._bring(
                    api, commit, [files[name] for name in indexes], [*map(escape, indexes)], show
                )
                parts = indexed(path, indexes, files)
                taken.update(parts)
                patterns = [*patterns, *map(escape, parts)]
            some = [file for name, file in files.items() if name in taken]
            accept({file.rfilename: file.size or 0 for file in some})
            return self._bring(api, commit, some, patterns, show)
        except CogTritonError:
            raise
        except Exception as error:
            raise self._translated(error) from None

    def _bring(
        self, api: HfApi, commit: str, files: list[RepoSibling], patterns: list[str], show: _Arrived
    ) -> Path:
        """Have `files`, which `patterns` match, in the cache; returns the directory there."""
        missing = [file for file in files if not self._has(file, commit)]
        _check_space(missing)
        show.total += sum(file.size or 0 for file in missing)
        there = self._fetch_large(missing, commit, show)
        small = [file for file in missing if file not in there]
        path = self._download(api, commit, patterns, show, _most_bytes(small))
        self._verify(small, path)
        show.before = show.total
        return path

    def _from_cache(self, api: HfApi, wanted: Callable[[Collection[str]], list[str]]) -> Path:
        some = Path(
            self._snapshot(api, self.revision, ["config.json", "tokenizer.json"], local_files_only=True)
        )
        try:
            patterns = wanted({file.name for file in some.iterdir()})
        except ModelFilesMissing:
            raise DownloadFailed(model=self.name, reason=_not_cached()) from None
        path = Path(self._snapshot(api, self.revision, patterns, local_files_only=True))
        indexes = [file for file in path.glob(f"*{INDEX}") if _takes(patterns, file.name)]
        if not all((path / part).is_file() for index in indexes for part in listed(index)):
            raise DownloadFailed(model=self.name, reason=_not_cached())
        return path

    def _has(self, file: RepoSibling, commit: str) -> bool:
        """Whether the cache has `file`. What is there instead is removed: it would pass for the file."""
        path = try_to_load_from_cache(self.name, file.rfilename, revision=commit)
        if not isinstance(path, str):
            return False
        if self._holds(Path(path)) and file.size in (None, Path(path).stat().st_size):
            return True
        self._remove(Path(path))
        return False

    @property
    def _folder(self) -> Path:
        return _cache().resolve() / repo_folder_name(repo_id=self.name, repo_type="model")

    def _holds(self, path: Path) -> bool:
        """Whether there is a file at `path`, and no link brings it in from where the model has none."""
        return belongs(path, self._folder.resolve()) and path.is_file()

    def _remove(self, path: Path) -> None:
        """Take a file out of the model's folder, and the links to it; what they lead to elsewhere stays."""
        folder = self._folder.resolve()
        while path.parent.resolve().is_relative_to(folder) and (path.is_symlink() or path.exists()):
            there = path.parent / path.readlink() if path.is_symlink() else path
            path.unlink()
            path = there

    def _fetch_large(
        self, files: Iterable[RepoSibling], commit: str, show: _Arrived
    ) -> Collection[RepoSibling]:
        """Fetch those of `files` that the hub has outside of Git, and return them."""
        blobs = self._folder / "blobs"
        fetched = []
        for file in files:
            if file.lfs is None or self._holds(blobs / file.lfs.sha256):
                continue
            url = hf_hub_url(self.name, file.rfilename, revision=commit)
            found = fetch_blob(url, file.lfs.sha256, file.lfs.size, blobs, self.token, show)
            if found is None:
                continue
            if found != file.lfs.sha256:
                raise self._corrupt(file.rfilename, "sha256", found, file.lfs.sha256)
            show.before += file.lfs.size
            fetched.append(file)
        return fetched

    def _download(
        self, api: HfApi, commit: str, patterns: list[str], show: _Arrived, most_bytes: int
    ) -> Path:
        """Run the hub library in a thread of its own, so that a cancelled build stops at the next chunk.

        Raises FileTooLong.
        """
        # The library would ask again which commit the revision is, and believe any answer.
        with suppress(OSError):  # a cache that cannot be written to may have it all
            _cache_commit_hash_for_specific_revision(str(self._folder), self.revision or "main", commit)
        cancelled = threading.Event()

        def count(done: int) -> None:
            if cancelled.is_set():
                raise _CancelledError
            if done > most_bytes:
                raise FileTooLong
            show(done)

        with ThreadPoolExecutor(1) as executor:
            future = executor.submit(self._snapshot, api, commit, patterns, tqdm_class=_byte_counter(count))
            try:
                while True:
                    try:
                        return Path(future.result(_POLL_SECONDS))
                    except TimeoutError:
                        if future.done():
                            raise
            finally:
                cancelled.set()

    def _snapshot(self, api: HfApi, revision: str | None, patterns: list[str], **options: Any) -> str:
        snapshot: str = api.snapshot_download(
            self.name, revision=revision, allow_patterns=patterns, ignore_patterns=_FOLDERS, **options
        )
        return snapshot

    def _verify(self, files: Iterable[RepoSibling], path: Path) -> None:
        """The library only compares sizes; what differs from the hub is removed from the cache again."""
        wrong = []
        for file in files:
            algorithm: HashAlgo = "git-sha1" if file.lfs is None else "sha256"
            expected = file.blob_id if file.lfs is None else file.lfs.sha256
            found = compute_file_hash(path / file.rfilename, algorithm)
            if expected not in (None, found):
                wrong.append(self._corrupt(file.rfilename, algorithm, found, str(expected)))
        for corrupt in wrong:  # not before all are read: two may be one in the cache
            self._remove(path / str(corrupt.details["file"]))
        if wrong:
            raise wrong[0]

    def _corrupt(self, file: str, algorithm: str, found: str, expected: str) -> ModelCorrupt:
        reason = f"its {algorithm} is {found} instead of {expected}"
        return ModelCorrupt(file=file, model=self.name, reason=reason)

    def _translated(self, error: Exception) -> CogTritonError:
        """Turn what the hub library raised into our errors; its own texts contain addresses and paths."""
        match error:
            case HFValidationError():
                return ModelNotFound(model=self.name, reason="that is not an owner/name on the hub")
            case GatedRepoError():
                return ModelGated(model=self.name)
            case RepositoryNotFoundError():
                reason = "the hub does not know it, or it is private"
                return ModelNotFound(model=self.name, reason=reason)
            case RevisionNotFoundError():
                return RevisionNotFound(model=self.name, revision=self.revision or "main")
            case LocalEntryNotFoundError() if constants.is_offline_mode():
                reason = _not_cached()
            case OfflineModeIsEnabled():
                reason = f"{_offline()} is set"
            case LocalEntryNotFoundError() if isinstance(error.__cause__, Exception):
                return self._translated(error.__cause__)
            case HfHubHTTPError() if error.response.status_code == httpx2.codes.UNAUTHORIZED:
                if self.token:
                    reason = "the hub does not accept this hf_token"
                elif "authorization" in error.response.request.headers:
                    reason = f"the hub does not accept the token {_place_of_token()}"
                else:
                    reason = "the hub wants a token"
                return ModelNotFound(model=self.name, reason=reason)
            case UnicodeEncodeError() | httpx2.LocalProtocolError() if self.token:
                reason = "this hf_token has characters that no token has"
                return ModelNotFound(model=self.name, reason=reason)
            case UnicodeEncodeError():
                reason = f"the token {_place_of_token()} has characters that no token has"
                return ModelNotFound(model=self.name, reason=reason)
            case Unreachable():
                reason = error.reason
            case NameRefused():
                reason = "the hub gives a commit or a file a name that it cannot have"
            case AnswerTooLong():
                reason = "what the hub says of the model has no end"
            case AnswerCompressed():
                reason = "the hub compresses its answers, though it is asked not to"
            case FileTooLong():
                reason = "the hub sends more of a file than it says that the file has"
            case HfHubHTTPError():
                reason = f"the hub answered {error.response.status_code}"
            case httpx2.TransportError() | httpx2.InvalidURL() if not is_web_address(constants.ENDPOINT):
                reason = "HF_ENDPOINT is not an http or https URL"
            case httpx2.ConnectError():
                refused = in_causes(error)
                reason = "no connection to the hub" if refused is None else why_refused(refused)
            case httpx2.TimeoutException():
                reason = "the hub did not answer in time"
            case OSError(errno=errno.ENOSPC):
                free = readable(shutil.disk_usage(_cache()).free) if _cache().is_dir() else "nothing"
                reason = f"{_cache()} was full before all of {self.name} had arrived; {free} is left"
                return NotEnoughSpace(reason=reason, place=_cache())
            case OSError() if (problem := settings_problem()) is not None:
                reason = problem
            case PermissionError():
                who = f"user {os.getuid()} (in a container: --user)"
                reason = f"the hub's cache, {_cache()}, cannot be written to by {who}"
            case OSError(strerror=str(text)):
                reason = text
            case _ if problem := proxy_problem():
                reason = problem
            case ValueError() | TypeError() | LookupError() | AttributeError():
                reason = f"what answers at {public_address(constants.ENDPOINT)} is not a Hugging Face hub"
            case _:
                reason = "the transfer was interrupted"
        return DownloadFailed(model=self.name, reason=reason)


def _not_cached() -> str:
    return f"the cache does not have all of it, and while {_offline()} is set nothing is fetched"


def _offline() -> str:
    """The variable by which the library is offline; it reads the second only where the first is empty."""
    first, second = "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"
    return second if os.environ.get(second) and not os.environ.get(first) else first


def _place_of_token() -> str:
    """Where the library itself found the token, in the order in which it looks."""
    if os.environ.get("HUGGING_FACE_HUB_TOKEN"):
        return "in HUGGING_FACE_HUB_TOKEN"
    return f"that is stored in {'HF_TOKEN_PATH' if os.environ.get('HF_TOKEN_PATH') else 'HF_HOME'}"


def _takes(patterns: Collection[str], name: str) -> bool:
    return not fnmatch(name, _FOLDERS) and any(fnmatch(name, pattern) for pattern in patterns)


def _check_space(files: Collection[RepoSibling]) -> None:
    """Refuse what does not fit, before any transfer."""
    cache = _cache()
    needed, free = sum(file.size or 0 for file in files), shutil.disk_usage(_existing(cache)).free
    if needed > free:
        reason = f"{readable(needed)} must be downloaded, but {cache} has {readable(free)} free"
        raise NotEnoughSpace(reason=reason, place=cache)


def _most_bytes(files: Collection[RepoSibling]) -> int:
    """How many may be written for `files`: twice their sizes, as the library may begin one again. Where the
    hub does not say them all, half of what is free.
    """
    sizes = [file.size for file in files if file.size is not None]
    if len(sizes) == len(files):
        return 2 * sum(sizes)
    return shutil.disk_usage(_existing(_cache())).free // 2


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _cache() -> Path:
    return Path(constants.HF_HUB_CACHE)


@dataclass
class _Arrived:
    """Takes the bytes of one file after the other."""

    progress: StepProgress
    total: int = 0
    before: int = 0

    def __call__(self, done: int) -> None:
        self.progress(self.before + done, self.total)


class _CancelledError(Exception):
    """Ends the transfers of a cancelled build."""


def _byte_counter(show: Callable[[int], None]) -> type[tqdm]:
    """A progress bar for the hub library that draws nothing and passes the bytes on."""

    class Counter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Besides the bytes written, the library counts files, and the bytes on the wire.
            self._shown = str(kwargs.get("desc")).startswith("Reconstructing")
            self._done = 0
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call] # tqdm has no types

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            if self._shown:
                show(self._done)

    return Counter
