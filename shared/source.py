"""What an address names: a file of this machine, or one behind an http(s) URL."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from shared.http import Arriving, Unreachable, download, limits
from shared.unreadable import FORBIDDEN, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.http import Progress

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
"""How the names of archives end, of engines and of models."""
_SCHEME = re.compile(r"(file|data|[a-z][a-z0-9+.-]*(?=://)):", re.IGNORECASE)
_CHUNK = 1 << 20


class NotThere(Unreachable):
    """There is no such file on this machine."""


def scheme(source: str) -> str:
    """Of a URL, in lower case; empty for a path."""
    found = _SCHEME.match(source)
    return found[1].lower() if found else ""


def is_web_address(source: str) -> bool:
    """Whether it is an http(s) URL with a host."""
    try:
        parts = urlsplit(source)
        _ = parts.port  # raises for one that is not a number
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def local_path(source: str) -> Path | None:
    """The path that `source` is, or names as a file: URL; None for an http(s) URL.

    Raises `Unreachable` for other kinds of URL.
    """
    match scheme(source):
        case "":
            return Path(source)
        case "http" | "https":
            return None
        case "file":
            return _path_of(source)
        case other:
            raise Unreachable(f"{other}: is not supported, unlike http:, https: and file:")


def data_content(url: str) -> bytes:
    """What `data:[media type][;base64],content` holds (RFC 2397). Raises `Unreachable`."""
    header, comma, content = url.partition(",")
    if not comma:
        raise Unreachable("it has no comma before its content")
    raw = unquote_to_bytes(content)
    if not header.lower().endswith(";base64"):
        return raw
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        raise Unreachable("its content is not base64") from None


def data_url(text: str) -> str:
    """The data: URL of JSON, as readable as it was."""
    return f"data:application/json,{text.replace('%', '%25')}"


def _path_of(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Unreachable("it is not a valid URL") from None
    if parts.netloc not in {"", "localhost"}:
        raise Unreachable("file:// can only name files on this machine")
    return Path(unquote(parts.path))


def opened(
    source: str, progress: Progress, *, attempts: int = limits.ATTEMPTS
) -> AbstractContextManager[Arriving]:
    """The bytes of `source`; http(s) is tried that many times. Raises `Unreachable`."""
    path = local_path(source)
    return download(source, progress, attempts=attempts) if path is None else opened_file(path, progress)


def found(path: Path) -> os.stat_result:
    """What is at `path`. Raises `Unreachable`, also for a directory that this user may not look into."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a path with NUL is a ValueError
        raise NotThere("there is no such file") from None
    except OSError as error:
        raise Unreachable(reason_of(error)) from None
    if stat.S_ISDIR(status.st_mode) and not os.access(path, os.R_OK | os.X_OK):
        raise Unreachable(FORBIDDEN)
    return status


@contextmanager
def opened_file(path: Path, progress: Progress) -> Iterator[Arriving]:
    """The bytes of a regular file: no other kind ends by itself. Raises `Unreachable`, as does reading it."""
    status = found(path)
    if not stat.S_ISREG(status.st_mode):
        raise Unreachable("it is a directory" if stat.S_ISDIR(status.st_mode) else "it is not a file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise Unreachable(reason_of(error)) from None
    with file:
        yield Arriving(_chunks(file), status.st_size, progress)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    try:
        while chunk := file.read(_CHUNK):
            yield chunk
    except OSError as error:
        raise Unreachable(reason_of(error)) from None
