"""A model that is published as a plain tar of its directory."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import httpx2

from shared.artifact import extract_archive
from shared.errors import CogTritonError, DownloadFailed, NotEnoughSpace
from shared.secrets import public_address
from shared.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.artifact import Manifest
    from shared.progress import StepProgress

_MAX_BYTES = 1 << 40
_TIMEOUTS = httpx2.Timeout(60.0, connect=10.0)  # s; the first holds for each wait for more data


def fetch_model_tar(url: str, destination: Path, progress: StepProgress) -> None:
    """Unpack the tar at `url`, whose top level has the model's config.json, into the new `destination`.

    Raises E3103 and E3105, and OSError when the disk becomes full; then nothing is left at `destination`.
    """

    def check(manifest: Manifest | None) -> None:
        if manifest is not None:
            raise DownloadFailed(model=public_address(url), reason="that is an engine.tar, not a model")

    try:
        with (
            httpx2.Client(timeout=_TIMEOUTS, follow_redirects=True) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            body = _Body(response, progress)
            _check_space(body.total or 0, destination.parent)
            extract_archive(body, destination, check=check, max_bytes=_MAX_BYTES)
    except (DownloadFailed, NotEnoughSpace):
        raise
    except CogTritonError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOSPC:
            raise error.__cause__ from None
        # It speaks of an engine archive; what is wrong with the tar is among its details.
        reason = f"the tar cannot be unpacked ({error.details.get('reason', error.name())})"
        raise DownloadFailed(model=public_address(url), reason=reason) from None
    except httpx2.HTTPStatusError as error:
        reason = f"the server answered {error.response.status_code}"
        raise DownloadFailed(model=public_address(url), reason=reason) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = f"the transfer broke ({type(error).__name__})"
        raise DownloadFailed(model=public_address(url), reason=reason) from None


def _check_space(size: int, place: Path) -> None:
    free = shutil.disk_usage(place).free
    if size > free:
        reason = f"the tar of the model has {readable(size)}, and {readable(free)} are free at {place.parent}"
        raise NotEnoughSpace(reason=reason, place=place)


class _Body:
    """The body of a response as a stream that can be read."""

    def __init__(self, response: httpx2.Response, progress: StepProgress) -> None:
        length = response.headers.get("Content-Length", "")
        self.total = int(length) if length.isdecimal() else None
        self._chunks: Iterator[bytes] = response.iter_bytes()
        self._rest = b""
        self._done = 0
        self._progress = progress

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        chunk = self._rest or next(self._chunks, b"")
        self._rest = chunk[size:]
        self._done += min(size, len(chunk))
        self._progress(self._done, self.total)
        return chunk[:size]
