# ruff: noqa: N999 - its name
"""Stands in for mpi4py's MPI, whose import is MPI_Init.

Below the stand-in of mpirun a file is there until MPI_Finalize. Below the real one it calls Open MPI's library.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from tests.support.tensorrt_llm.faults import seeded

_initialised = os.environ.get("STAND_IN_MPI_INITIALISED")
_library: ctypes.CDLL | None = None
if _initialised:
    Path(_initialised).touch()
elif os.environ.get("OMPI_COMM_WORLD_RANK"):
    _library = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    _library.MPI_Init(None, None)


def meet() -> None:
    """Where all ranks wait for one another, on whichever host."""
    if _library is None:
        return
    world = ctypes.addressof(ctypes.c_char.in_dll(_library, "ompi_mpi_comm_world"))
    request, flag = ctypes.c_void_p(), ctypes.c_int()
    _library.MPI_Ibarrier(ctypes.c_void_p(world), ctypes.byref(request))
    while not flag.value:
        _library.MPI_Test(ctypes.byref(request), ctypes.byref(flag), None)
        time.sleep(0.01)


def Finalize() -> None:  # noqa: N802 - its name
    if _library is not None:
        _library.MPI_Finalize()
    elif _initialised and not seeded("MPI stays"):
        Path(_initialised).unlink()
