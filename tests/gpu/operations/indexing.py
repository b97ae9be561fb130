"""PyTorch's own kernels: elements in other places, and of other types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from .inputs import BF16, DEVICE, F16, F64, I8, I32, I64, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def indexing() -> Iterator[tuple[str, Operation]]:
    yield "gather", lambda t: torch.gather(t(99, 99), 1, t(99, 50, dtype=I64, low=0, high=99))
    yield "scatter", lambda t: torch.scatter(t(9, 99), 1, torch.arange(50).to(DEVICE).expand(9, 50), t(9, 50))
    yield (
        "scatter_add int",
        lambda t: t(99, dtype=I32).scatter_add(0, t(999, dtype=I64, low=0, high=99), t(999, dtype=I32)),
    )
    yield "scatter_add", lambda t: t(99).scatter_add(0, t(9999, dtype=I64, low=0, high=99), t(9999))
    yield "index_select", lambda t: torch.index_select(t(99, 99), 0, t(500, dtype=I64, low=0, high=99))
    yield "index_put", lambda t: t(999).index_put((torch.arange(0, 999, 3).to(DEVICE),), t(333))
    yield "masked_select", lambda t: torch.masked_select(x := t(301, 77), x > 0)
    yield "where", lambda t: torch.where(t(301, 77) > 0, t(301, 77), t(77))
    yield "nonzero", lambda t: torch.nonzero(t(301, 77) > 0)
    yield "take_along_dim", lambda t: torch.take_along_dim(x := t(99, 99), x.argsort(1), 1)
    yield "embedding", lambda t: F.embedding(t(50, 40, dtype=I64, low=0, high=999), t(999, 64))
    yield "embedding_bag", lambda t: F.embedding_bag(t(50, 40, dtype=I64, low=0, high=999), t(999, 64))
    yield "one_hot", lambda t: F.one_hot(t(999, dtype=I64, low=0, high=50), 50)
    yield "tril", lambda t: torch.tril(t(99, 99))
    yield "roll flip rot90", lambda t: (torch.roll(x := t(99, 77), 5, 0), x.flip(0), torch.rot90(x))
    yield "cat stack", lambda t: (torch.cat([t(9, 77), t(99, 77)]), torch.stack([t(9, 7), t(9, 7)]))
    yield "repeat_interleave", lambda t: torch.repeat_interleave(t(99), t(99, dtype=I64, low=0, high=9))
    yield "transposed copy", lambda t: t(301, 77, 13).permute(2, 0, 1).contiguous()
    for dtype in (F16, BF16, F64, I8, I64, torch.float8_e4m3fn, torch.float8_e5m2):
        yield f"to {dtype}", lambda t, dtype=dtype: t(301, 77).to(dtype).float()
