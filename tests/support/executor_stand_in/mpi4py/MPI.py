# ruff: noqa: N999 - its name
"""Stands in for mpi4py's MPI, whose import is MPI_Init: the file is there until MPI_Finalize."""

import os
from pathlib import Path

_initialised = os.environ.get("STAND_IN_MPI_INITIALISED")
if _initialised:
    Path(_initialised).touch()


def Finalize() -> None:  # noqa: N802 - its name
    if _initialised:
        Path(_initialised).unlink()
