"""Stands in for the package `tensorrt_llm`; like it, it says its version on stdout ("Import and libraries").

An environment variable makes the import fail as it does on a machine without a driver.
"""

import os

if "STAND_IN_IMPORT_ERROR" in os.environ:
    raise ImportError(os.environ["STAND_IN_IMPORT_ERROR"])

print("[TensorRT-LLM] TensorRT-LLM version: 1.2.1 (stand-in)")
