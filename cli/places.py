"""Paths from where a command is given, for processes that work elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_OF_LIBRARIES = ("HF_HOME", "HF_HUB_CACHE", "SSL_CERT_FILE", "TMPDIR")


def absolute(engine: str) -> str:
    """An existing path, as it is from every working directory; everything else is left as it is."""
    from shared.http import Unreachable
    from shared.source import NotThere, found, scheme

    try:
        if scheme(engine):
            return engine
        found(Path(engine))
    except NotThere:
        return engine
    except Unreachable:  # what reads the engine says what is wrong with it
        return str(Path(engine).absolute())
    return str(Path(engine).resolve())


def from_here() -> dict[str, str]:
    """The environment, with the paths in its settings as they are from every working directory."""
    from runner.engines.hosts.settings import CLUSTER
    from runner.settings import PATHS

    environment = dict(os.environ)
    for name in (*PATHS, *_OF_LIBRARIES):
        if value := environment.get(name):
            with suppress(OSError):  # there is no working directory any more
                environment[name] = str(Path(value).absolute())
    for name in ("COG_WEIGHTS", "COG_TRITON_CONFIG", "MPI_HOSTS"):
        if (value := environment.get(name)) and value != CLUSTER:
            environment[name] = absolute(value)
    return environment
