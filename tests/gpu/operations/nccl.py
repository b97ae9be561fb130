"""NCCL."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .inputs import Inputs, Operation


def nccl() -> Iterator[tuple[str, Operation]]:
    """A group of one: NCCL looks up its kernels when it starts, though one rank needs few of them."""
    from torch import distributed

    def group(inputs: Inputs, name: str) -> Tensor:
        if not distributed.is_initialized():
            store = tempfile.mkdtemp()
            distributed.init_process_group("nccl", init_method=f"file://{store}/store", rank=0, world_size=1)
        data = inputs(9999)
        result = torch.zeros_like(data)
        if name == "all_reduce":
            distributed.all_reduce(data)
            return data
        if name == "broadcast":
            distributed.broadcast(data, 0)
            return data
        getattr(distributed, name)(result, data)
        return result

    for name in (
        "all_reduce",
        "broadcast",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
        "all_to_all_single",
    ):
        yield f"nccl {name}", lambda t, name=name: group(t, name)
    yield "nccl premultiplied sum", lambda t: _premultiplied(group(t, "broadcast"))


def _premultiplied(data: Tensor) -> Tensor:
    from torch import distributed

    distributed.all_reduce(data, op=distributed._make_nccl_premul_sum(0.5))
    return data
