"""The environment of requirements/bench.txt, in .build/bench: made when it is first asked for."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

from shared.layout import PROJECT_ROOT, Layout

if TYPE_CHECKING:
    from pathlib import Path

_LOCK = PROJECT_ROOT / "requirements/bench.txt"


def bench_python() -> Path:
    """Its interpreter, which is that of this process."""
    place = Layout.current().home / "bench"
    python, stamp = place / "bin/python", place / "made"
    recipe = hashlib.sha256((_LOCK.read_text() + sys.version).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != recipe:
        venv.create(place, clear=True, with_pip=True, symlinks=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", _LOCK]
        subprocess.run(install, check=True)
        stamp.write_text(recipe)
    return python


def site_packages() -> Path:
    """Where its packages are."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return bench_python().parent.parent / "lib" / name / "site-packages"
