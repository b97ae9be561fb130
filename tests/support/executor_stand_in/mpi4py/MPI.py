# ruff: noqa: N999 - its name
"""Stands in for mpi4py's MPI, whose import is MPI_Init: the file is there until MPI_Finalize."""

import os
from pathlib import Path

from tests.support.tensorrt_llm.faults import seeded

_initialised = os.environ.get("STAND_IN_MPI_INITIALISED")
if _initialised:
    Path(_initialised).touch()


def Finalize() -> None:  # noqa: N802 - its name
    if _initialised and not seeded("MPI stays"):
        Path(_initialised).unlink()
