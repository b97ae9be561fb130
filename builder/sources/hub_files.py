"""A large file of the hub, over many connections, into the hub library's own cache."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from huggingface_hub import get_hf_file_metadata
from huggingface_hub.utils._headers import build_hf_headers

from shared.artifact import Store
from shared.http import download

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shared.artifact.tar import Readable

_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def fetch_blob(
    url: str, sha256: str, size: int, blobs: Path, token: str | None, show: Callable[[int], None]
) -> str | None:
    """Fetch the file at `url` into `blobs`, the folder where the library looks for it by its SHA-256.

    Returns the SHA-256 of what came, which is not kept if it is another one. No more than a byte beyond
    `size` is read: more would fill the disk, and be another file in any case. If the library looks for the
    file by another name, returns None and fetches nothing. Raises errors of the library, `Unreachable` and
    OSError.
    """
    # Also because the library has words for what the hub refuses.
    if get_hf_file_metadata(url, token=token).etag != sha256 or not _SHA256.fullmatch(sha256):
        return None
    blobs.mkdir(parents=True, exist_ok=True)
    incomplete = blobs / f"{sha256}.{secrets.token_hex(4)}.incomplete"
    authorization = build_hf_headers(token=token).get("authorization")
    try:
        with (
            download(url, lambda done, _: show(done), authorization=authorization) as body,
            Store() as store,
        ):
            digest = store.keep(incomplete, _beginning(body, size + 1))
            store.wait()
        if digest == sha256:
            incomplete.rename(blobs / sha256)
        return digest
    finally:
        incomplete.unlink(missing_ok=True)


def _beginning(body: Readable, size: int) -> Iterator[bytes | memoryview]:
    """The first `size` bytes."""
    while size > 0 and (chunk := body.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk
