"""NVIDIA's load generator, in an environment of its own: what it pins is older than what the product has."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from typing import TYPE_CHECKING, Any

from shared.layout import PROJECT_ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOCK = PROJECT_ROOT / "requirements/test-aiperf.txt"
PLACE = PROJECT_ROOT / ".build/test-aiperf"
MADE = PLACE / "made"
# Some ten processes start, and each needs seconds of the CPU for its imports.
_MAX_SECONDS = 400


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


def profile(arguments: list[Any], home: Path) -> None:
    """Run `aiperf profile` with these arguments, and leave nothing of it: it removes no temporary file."""
    # Not below `home`: the path of a socket in it may not be long.
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            [program(), "profile", *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=_MAX_SECONDS,
            env=os.environ | {"HOME": str(home), "TMPDIR": temporary},
        )
    assert done.returncode == 0, done.stdout + done.stderr
