"""NVIDIA's load generator, in an environment of its own: what it pins is older than what the product has."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

from shared.layout import PROJECT_ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOCK = PROJECT_ROOT / "requirements/test-aiperf.txt"
PLACE = PROJECT_ROOT / ".build/test-aiperf"
MADE = PLACE / "made"


def program() -> Path:
    """The command; its environment is made at the first call, and again when the lock changes."""
    recipe = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    PLACE.parent.mkdir(exist_ok=True)
    # Tests of two files may come here at the same time, in processes of their own.
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not MADE.is_file() or MADE.read_text() != recipe:
            venv.create(PLACE, clear=True, with_pip=True, symlinks=True)
            # The lock is complete, and deliberately omits some declared requirements.
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
            pip = [str(PLACE / "bin/python"), "-m", "pip", "install", *options]
            subprocess.run([*pip, "-r", str(LOCK)], check=True)
            MADE.write_text(recipe)
    return PLACE / "bin/aiperf"
