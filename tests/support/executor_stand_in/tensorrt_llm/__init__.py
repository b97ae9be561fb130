"""Stands in for the package `tensorrt_llm`; like it, it says its version on stdout ("Import and libraries").

An environment variable makes the import fail as it does on a machine without a driver.
"""

import os
from importlib import import_module
from tempfile import TemporaryDirectory

if "STAND_IN_IMPORT_ERROR" in os.environ:
    raise ImportError(os.environ["STAND_IN_IMPORT_ERROR"])

with TemporaryDirectory(dir=os.environ["HOME"]):
    """Like flashinfer, which keeps what it compiles there."""

import_module("mpi4py.MPI")  # which is MPI_Init

print("[TensorRT-LLM] TensorRT-LLM version: 1.2.1 (stand-in)")
