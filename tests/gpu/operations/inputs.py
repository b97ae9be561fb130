"""What operations are made of: their inputs, and gradients.

Inputs are made on the CPU from a seed that depends on the operation's name alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

F16, BF16, F32, F64, C64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64
DEVICE = "cuda"
I8, I32, I64 = torch.int8, torch.int32, torch.int64


class Inputs:
    """Tensors for one operation: `inputs(shape..., dtype=..)`; normal, or uniform over small integers."""

    def __init__(self, name: str) -> None:
        self.seed = zlib.crc32(name.encode())
        self.generator = torch.Generator().manual_seed(self.seed)
        torch.manual_seed(self.seed)

    def __call__(self, *shape: int, dtype: torch.dtype = F32, low: int = -100, high: int = 100) -> Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            base = torch.randn(shape, generator=self.generator, dtype=C64 if dtype.is_complex else F32)
        else:
            base = torch.randint(low, high, shape, generator=self.generator)
        return base.to(dtype).to(DEVICE)

    def positive(self, size: int, dtype: torch.dtype = F32) -> Tensor:
        """A symmetric positive definite matrix, or several."""
        half = self(3, size, size, dtype=dtype)
        return half @ half.mH + size * torch.eye(size, dtype=dtype).to(DEVICE)


Operation = Callable[[Inputs], Any]


def gradients(function: Callable[..., Tensor], *tensors: Tensor) -> list[Tensor]:
    wanted = [tensor.requires_grad_() for tensor in tensors]
    result = function(*wanted)
    return [result, *torch.autograd.grad(result.float().square().sum(), wanted)]
