"""How long the hub may take, like any server (shared/http/limits.py), how much it may say, what it may name,
who gets the token.

By itself, the hub library waits for ever for the answers to some requests, and for each byte of a drip.
Dripping headers have no limit at all (hub_waiting.py). It keeps answers and lists in memory, however long
they are. It unpacks compressed answers to any size. It makes paths below its cache of the names that the hub
gives to contents and commits, whatever they are. And it sends the token to wherever the hub says that a list
goes on.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2
from huggingface_hub import constants, set_client_factory
from huggingface_hub.file_download import REGEX_COMMIT_HASH, _normalize_etag
from huggingface_hub.utils._http import _is_same_or_hub_host, default_client_factory

from builder.sources.hub_waiting import limit_waiting
from shared.http import TooSlow, limits, paced

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_ANSWER = 64 << 20  # bytes; what it says of 100,000 files, as many as it advises, takes half of that
_MAX_VALUES = 4 << 20  # in its JSON: of small ones, so many bytes would take 20 times the memory
_MAX_PAGES = 100  # of 1,000 files each
_PART = re.compile(r"bytes=(\d{1,18})-(\d{1,18})", re.ASCII)
_CONTENT = re.compile(r"(?!\.{1,2}$)[\w.-]{1,128}", re.ASCII)


class NameRefused(Exception):  # named by what happened, like the library's own
    """The hub gave a content or a commit a name that it cannot have, such as a path."""


class AnswerTooLong(Exception):
    """What the hub says of a model goes on and on."""


class AnswerCompressed(Exception):
    """The hub compressed an answer, though it was asked not to: it could unpack to any size."""


class FileTooLong(Exception):
    """More of a file arrives than the hub says that it has."""


class _File(threading.local):
    """The file that a thread fetches."""

    most_bytes: int | None = None


class _List(threading.local):
    """The one list that a thread asks for, page after page (HubModel._download has a thread for each)."""

    pages = 0


_list = _List()
_file = _File()


@contextmanager
def file_of_at_most(most_bytes: int) -> Iterator[None]:
    """Within it, a larger file that this thread fetches raises AnswerTooLong."""
    _file.most_bytes = most_bytes
    try:
        yield
    finally:
        _file.most_bytes = None


def limit_the_hub() -> None:
    """Make the hub library's own HTTP client abandon what is too slow, and refuse what leads elsewhere."""
    set_client_factory(_client)
    # With Xet, the library takes names of contents from the list of a model's files, too. It is not missed:
    # large files are not fetched by the library (hub_files.py).
    constants.HF_HUB_DISABLE_XET = True


def check_commit(name: object) -> str:
    """The name of a commit that the hub gave. Raises NameRefused."""
    if not isinstance(name, str) or not REGEX_COMMIT_HASH.fullmatch(name):
        raise NameRefused
    return name


def _client() -> httpx2.Client:
    client = default_client_factory()
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], _limit_silence, _withhold_token, _ask_for_plain],
        "response": [*hooks["response"], _refuse_compressed, _limit_bodies, _limit_lists, _refuse_paths],
    }
    limit_waiting(client)
    return client


def _limit_silence(request: httpx2.Request) -> None:
    timeouts = request.extensions.get("timeout", {})
    most = {"connect": limits.CONNECT_SECONDS, "read": limits.SILENCE_SECONDS}
    request.extensions["timeout"] = {
        **timeouts,
        **{name: min(timeouts.get(name) or seconds, seconds) for name, seconds in most.items()},
    }


def _withhold_token(request: httpx2.Request) -> None:
    """From all but the hub, which may send from http to https."""
    hub = constants.ENDPOINT
    places = (hub, hub.replace("http://", "https://", 1))
    if not any(_is_same_or_hub_host(place, str(request.url)) for place in places):
        request.headers.pop("authorization", None)


def _ask_for_plain(request: httpx2.Request) -> None:
    request.headers["accept-encoding"] = "identity"


def _refuse_compressed(response: httpx2.Response) -> None:
    """Raises AnswerCompressed."""
    encoding = response.headers.get("content-encoding", "identity")
    if response.request.method != "HEAD" and encoding.strip().lower() not in ("", "identity"):
        raise AnswerCompressed


def _limit_bodies(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.SyncByteStream)
    path = response.url.path
    # Files, of which the API has some, too, go to the disk.
    is_answer = "/api/" in path and "/api/resolve-cache/" not in path
    part = _PART.fullmatch(response.request.headers.get("range", ""))
    most = _file.most_bytes
    if is_answer:
        most = _MAX_ANSWER
    elif part:  # which the library keeps in memory
        most = max(int(part[2]) - int(part[1]) + 1, 0)
    response.stream = _Limited(response.stream, most, _MAX_VALUES if is_answer else None)


def _limit_lists(response: httpx2.Response) -> None:
    """Raises AnswerTooLong."""
    if "next" in response.links:
        _list.pages += 1
        if _list.pages >= _MAX_PAGES:
            raise AnswerTooLong


def _refuse_paths(response: httpx2.Response) -> None:
    """Raises NameRefused."""
    if response.request.method != "HEAD":  # with which the library asks for the names of what it will store
        return
    # A refusal's own ETag, which may hold a slash, names nothing that is stored; its commit does.
    for header in () if response.is_error else ("etag", "x-linked-etag"):
        # As the library reads it: of W.. it makes .. again.
        name = _normalize_etag(response.headers.get(header))
        if name is not None and not _CONTENT.fullmatch(name):
            raise NameRefused
    if (commit := response.headers.get("x-repo-commit")) is not None:
        check_commit(commit)
        asked = response.request.url.path.partition("/resolve/")[2].partition("/")[0]
        if REGEX_COMMIT_HASH.fullmatch(asked) and asked != commit:  # the file would be among those of another
            raise NameRefused


class _Limited(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, most: int | None, most_values: int | None) -> None:
        self._stream = stream
        self._most = most
        self._most_values = most_values

    def __iter__(self) -> Iterator[bytes]:
        """Raises AnswerTooLong."""
        done = values = 0
        try:
            for chunk in paced(iter(self._stream)):
                done += len(chunk)
                if self._most is not None and done > self._most:
                    raise AnswerTooLong
                if self._most_values is not None:
                    values += sum(chunk.count(mark) for mark in (b"[", b"{", b",", b":"))
                    if values > self._most_values:
                        raise AnswerTooLong
                yield chunk
        except TooSlow:
            raise httpx2.ReadTimeout("the server sends too slowly") from None

    def close(self) -> None:
        self._stream.close()
