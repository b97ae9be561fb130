"""A HOME for libraries that keep files there; standard library only."""

from __future__ import annotations

import os
import tempfile


def writable_home() -> str:
    """HOME where it can be written to, else a new directory.

    flashinfer, which TensorRT-LLM imports, makes folders under it right away, and fails where that is not
    allowed: in a container whose user or file system is not what the image expects.
    """
    home = os.environ.get("HOME", "")
    if os.access(home, os.W_OK | os.X_OK):
        return home
    return tempfile.mkdtemp(prefix="cog-triton-home-")
