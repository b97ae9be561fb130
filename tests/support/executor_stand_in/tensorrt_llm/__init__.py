"""Stands in for the package `tensorrt_llm`; like it, it says its version on stdout ("Import and libraries").

An environment variable makes the import fail as it does on a machine without a driver. The tools are those in
tests/support/tensorrt_llm.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.tensorrt_llm.faults import seeded

if "STAND_IN_IMPORT_ERROR" in os.environ:
    raise ImportError(os.environ["STAND_IN_IMPORT_ERROR"])

__path__.append(str(Path(__file__).parents[2] / "tensorrt_llm"))
VERSION = __version__ = "1.3.0" if seeded("another version") else "1.2.1"
if seeded("broken library"):
    __file__ = str(Path(sys.prefix, "broken/__init__.py"))

with TemporaryDirectory(dir=os.environ["HOME"]):
    """Like flashinfer, which keeps what it compiles there."""

import_module("mpi4py.MPI")  # which is MPI_Init

print(f"[TensorRT-LLM] TensorRT-LLM version: {__version__} (stand-in)")
