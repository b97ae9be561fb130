"""Push an image with skopeo, which knows registries: what they already have is neither sent nor made."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .archive import write_small_files
from .demand import copy_on_demand
from .registry import UNTRUSTED, Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .image import Image

_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')
# An upload's address may be signed.
_QUERY = re.compile(r"(?<=\w)\?[^\s\":]+")
# What people name may be a word that means something here.
_NAMED = re.compile(r"\S*/\S*|(?<=manifest )\S+(?= to )")
_REMEDIES = (
    (
        re.compile(
            r"unauthorized|authentication required|(?<!permission )denied|(?<![:\w])40[13]\b", re.IGNORECASE
        ),
        "{host} refused the credentials: `docker login {host}`, with an account that may push {reference}.",
    ),
    (re.compile(r"no space left on device", re.IGNORECASE), "A disk is full, here or at {host}: {reason}"),
    (re.compile(r"x509: "), UNTRUSTED),
    (
        re.compile(
            r"connection refused|no such host|timeout|unreachable|\bEOF\b|reset by peer|broken pipe"
            r"|use of closed network connection",
            re.IGNORECASE,
        ),
        "{host} cannot be reached; what has arrived there is kept, so push again: {reason}",
    ),
)


def push(image: Image, reference: str, skopeo: str, tell: Callable[[str], None]) -> None:
    """Push to `reference` (host/repository:tag), with the credentials in docker's config. Raises Problem."""
    Registry(reference)  # skopeo would take a name without a host for one on Docker's hub
    with tempfile.TemporaryDirectory(prefix="push-") as scratch:
        layout = Path(scratch)
        write_small_files(image, layout)
        command = [*copy_command(skopeo, reference), f"oci:{layout}", f"docker://{reference}"]
        copy_on_demand(
            image, layout, command, explain=lambda complaint: explain(complaint, reference), tell=tell
        )


def copy_command(skopeo: str, reference: str) -> list[str]:
    """`skopeo copy` without its last two arguments; a registry on this machine may lack TLS."""
    local = re.match(r"(localhost|127\.[0-9.]+)(:|/)", reference) is not None
    plain = ["--src-tls-verify=false", "--dest-tls-verify=false"] if local else []
    return [skopeo, "--insecure-policy", "copy", "--preserve-digests", "--retry-times", "3", *plain]


def explain(complaint: str, reference: str) -> str:
    """The complaint of skopeo as one sentence that says what to do."""
    last = complaint.splitlines()[-1]
    message = _MESSAGE.search(last)
    reason = _QUERY.sub("", message[1].replace('\\"', '"') if message else last)
    said = _NAMED.sub("", reason)
    host = reference.partition("/")[0]
    for pattern, text in _REMEDIES:
        if pattern.search(said):
            return text.format(host=host, reference=reference, reason=reason)
    return f"{reference} could not be pushed: {reason}"
