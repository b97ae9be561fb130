"""Push an image with skopeo, which knows registries: what is there already is neither sent nor made."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .archive import write_blob, write_small_files
from .problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from .image import Image

_MISSING = re.compile(r"blobs/(sha256)/([0-9a-f]{64}): no such file")
_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')
_REMEDIES = (
    (
        re.compile(r"unauthorized|authentication required|denied|\b40[13]\b", re.IGNORECASE),
        "{host} refused the credentials: `docker login {host}`, with an account that may push {reference}.",
    ),
    (re.compile(r"no space left on device", re.IGNORECASE), "A disk is full, here or at {host}: {reason}"),
    (
        re.compile(r"connection refused|no such host|timeout|unreachable|EOF|reset by peer", re.IGNORECASE),
        "{host} cannot be reached; what has arrived there is kept, so push again: {reason}",
    ),
)


def push(image: Image, reference: str, skopeo: str, tell: Callable[[str], None]) -> None:
    """Push to `reference` (host/repository:tag), with the credentials in docker's config. Raises Problem."""
    layers = {record["digest"]: record for record in image.layers}
    sent: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="push-") as scratch:
        layout = Path(scratch)
        write_small_files(image, layout)
        command = [*copy_command(skopeo, reference), f"oci:{layout}", f"docker://{reference}"]
        while complaint := run(command):
            missing = _MISSING.search(complaint)
            digest = ":".join(missing.groups()) if missing else ""
            # skopeo opens a layer only when the registry lacks it: then it is made, and skopeo asked again.
            if digest not in layers or digest in sent:
                raise Problem(explain(complaint, reference))
            record = layers[digest]
            tell(f"{record['name']}: sending {record['size'] / 1e6:.1f} MB")
            write_blob(record, layout)
            sent.add(digest)
    for digest, record in layers.items():
        if digest not in sent:
            tell(f"{record['name']}: was there")


def copy_command(skopeo: str, reference: str) -> list[str]:
    """`skopeo copy` without its last two arguments; a registry on this machine may lack TLS."""
    local = re.match(r"(localhost|127\.[0-9.]+)(:|/)", reference) is not None
    plain = ["--src-tls-verify=false", "--dest-tls-verify=false"] if local else []
    return [skopeo, "--insecure-policy", "copy", "--preserve-digests", "--retry-times", "3", *plain]


def run(command: list[str]) -> str:
    """What a command complains of; empty when it succeeds. Raises Problem when it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Problem(f"{command[0]} is not there: install skopeo.") from None
    return (done.stderr.strip() or f"it ended with status {done.returncode}") if done.returncode else ""


def explain(complaint: str, reference: str) -> str:
    """The complaint of skopeo as one sentence that says what to do."""
    last = complaint.splitlines()[-1]
    message = _MESSAGE.search(last)
    reason = message[1].replace('\\"', '"') if message else last
    host = reference.partition("/")[0]
    for pattern, text in _REMEDIES:
        if pattern.search(reason):
            return text.format(host=host, reference=reference, reason=reason)
    return f"{reference} could not be pushed: {reason}"
