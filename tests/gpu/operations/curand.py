"""cuRAND."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .inputs import DEVICE, Inputs, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def curand() -> Iterator[tuple[str, Operation]]:
    yield "curand uniform", _uniform


def _uniform(_: Inputs) -> Tensor:
    """Straight from the library: PyTorch links it, and makes its own random numbers."""
    library = ctypes.CDLL("libcurand.so.10")
    result = torch.zeros(9999, device=DEVICE)
    generator = ctypes.c_void_p()
    calls = [
        lambda: library.curandCreateGenerator(ctypes.byref(generator), 161),  # Philox
        lambda: library.curandSetPseudoRandomGeneratorSeed(generator, ctypes.c_ulonglong(7)),
        lambda: library.curandGenerateUniform(
            generator, ctypes.c_void_p(result.data_ptr()), ctypes.c_size_t(9999)
        ),
    ]
    for call in calls:
        if status := call():
            raise RuntimeError(f"cuRAND {status}")
    torch.cuda.synchronize()
    return result
