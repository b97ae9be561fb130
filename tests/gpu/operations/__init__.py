"""Operations on a GPU whose results are compared bit by bit: PyTorch's own kernels and NVIDIA's libraries."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .cublas import cublas
from .cudnn import cudnn
from .cufft import cufft
from .curand import curand
from .cusolver import cusolver
from .cusparse import cusparse
from .indexing import indexing
from .inputs import Inputs, Operation
from .nccl import nccl
from .networks import networks
from .pointwise import pointwise
from .reductions import reductions

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Inputs", "digest", "operations"]

_GROUPS = (curand, pointwise, reductions, indexing, cublas, cusolver, cusparse, cufft, cudnn, networks, nccl)


def operations() -> dict[str, Operation]:
    """All of them by name."""
    return {name: operation for group in _GROUPS for name, operation in group()}


def digest(result: Any) -> str:
    """sha256 of the bits of all tensors in a result, with their types and shapes."""
    state = hashlib.sha256()
    for tensor in _tensors(result):
        plain = tensor.detach().cpu().contiguous()
        state.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        state.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    else:
        for part in result:
            yield from _tensors(part)
