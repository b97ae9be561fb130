"""Copy an image with a program that opens only the layers that the target lacks: only those are made."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from .archive import write_blob
from .problem import Problem
from .program import unbroken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from .image import Image

_MISSING = re.compile(r"blobs/(sha256)/([0-9a-f]{64}): no such file")


def copy_on_demand(
    image: Image,
    layout: Path,
    command: list[str],
    *,
    known: Collection[str] | None = None,
    directory: Path | None = None,
    explain: Callable[[str], str],
    tell: Callable[[str], None],
) -> None:
    """Run a command that copies from the OCI layout, which has no layers yet, until it has all it needs.

    If it is known which layers the target has (diff_ids), the others are made right away. The command is run
    in `directory`. Raises Problem, with what `explain` makes of its complaint.
    """
    sent: set[str] = set()

    def make(record: dict[str, object]) -> None:
        tell(f"{record['name']}: sending {float(str(record['size'])) / 1e6:.1f} MB")
        write_blob(record, layout)
        sent.add(str(record["digest"]))

    layers = {record["digest"]: record for record in image.layers}
    if known is not None:
        for record in image.layers:
            if record["diff_id"] not in known:
                make(record)
    while complaint := run(command, directory):
        missing = _MISSING.search(complaint)
        digest = ":".join(missing.groups()) if missing else ""
        if digest not in layers or digest in sent:
            raise Problem(explain(complaint))
        make(layers[digest])
    for digest, record in layers.items():
        if digest not in sent:
            tell(f"{record['name']}: already there")


def run(command: list[str], directory: Path | None = None) -> str:
    """A command's complaint; empty when it succeeds. Raises Problem when it is missing."""
    started = None
    try:
        with unbroken():
            started = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=directory
            )
        complaint = started.communicate()[1]
    except FileNotFoundError:
        raise Problem(f"{command[0]} is missing: install it.") from None
    except KeyboardInterrupt:
        if started is not None:
            with started:  # its end is waited for
                started.terminate()
        raise
    return (complaint.strip() or f"it ended with status {started.returncode}") if started.returncode else ""
