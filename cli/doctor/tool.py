"""Ask another program a question that it answers right away, or not at all."""

from __future__ import annotations

import shutil
import subprocess

_SECONDS = 10


def answer(*command: str) -> str | None:
    """What `command` prints; None when it is missing, fails, or does not answer."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
