"""What TensorRT-LLM logs while it loads an engine: why that failed is there, not in its exception.

Its logger is C++ and writes to descriptor 1, so Python's sys.stdout sees nothing of it; and its constructors
hold the GIL, so no thread of this process could read a pipe meanwhile. Hence a process of its own, which is
this module: it copies what it reads to stderr immediately, and returns the last of it when asked. So what a
load that ends in a crash has written is not lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASKED = b"\0"  # within the log, where it means nothing
_MAX_KEPT = 1 << 20
_SECONDS_TO_END = 1


class Overheard:
    """The log of one load; empty until it has ended."""

    text = ""


@contextmanager
def overhearing() -> Iterator[Overheard]:
    """Overhear descriptors 1 and 2, for everything in this process and those that it starts."""
    overheard = Overheard()
    sys.stdout.flush()
    sys.stderr.flush()
    listener = subprocess.Popen(
        [sys.executable, "-IS", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert listener.stdin
    assert listener.stdout
    kept = os.dup(1), os.dup(2)
    for descriptor in (1, 2):
        os.dup2(listener.stdin.fileno(), descriptor)
    try:
        yield overheard
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)
        with suppress(BrokenPipeError), listener.stdin as log:
            log.write(_ASKED)
        with listener.stdout as answer:
            overheard.text = answer.read().decode(errors="replace")
        try:
            listener.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:  # processes that the load started keep writing
            threading.Thread(target=listener.wait, name="overhearing", daemon=True).start()


def _listen() -> None:
    kept = b""
    answered = False
    while data := os.read(0, 1 << 16):
        data, asked, rest = data.partition(_ASKED)
        data += rest
        with suppress(OSError):  # the reader of our stderr is gone
            os.write(2, data)
        kept = (kept + data)[-_MAX_KEPT:]
        if asked and not answered:
            answered = True
            with os.fdopen(1, "wb") as answer:
                answer.write(kept)
            kept = b""


if __name__ == "__main__":
    _listen()
