"""PyTorch's own kernels: along a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .inputs import I64, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

_REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "logsumexp",
    "norm",
    "median",
    "nanmean",
    "any",
    "all",
    "count_nonzero",
    "nansum",
]


def reductions() -> Iterator[tuple[str, Operation]]:
    for name in _REDUCTIONS:
        yield f"{name} rows", lambda t, name=name: getattr(torch, name)(t(301, 1777), dim=1)
        yield f"{name} columns", lambda t, name=name: getattr(torch, name)(t(301, 1777), dim=0)
    for name in ("cumsum", "cumprod", "cummax", "logcumsumexp", "sort", "argsort"):
        yield name, lambda t, name=name: getattr(torch, name)(t(301, 777), dim=1)
    yield "topk", lambda t: torch.topk(t(301, 7777), 50)
    yield "kthvalue", lambda t: torch.kthvalue(t(31, 777), 50)
    yield "mode", lambda t: torch.mode(t(31, 777, dtype=I64))
    yield "unique", lambda t: torch.unique(t(9999, dtype=I64), return_counts=True)
    yield "histc", lambda t: torch.histc(t(9999), 50)
    yield "bincount", lambda t: torch.bincount(t(9999, dtype=I64, low=0))
    yield "searchsorted", lambda t: torch.searchsorted(t(99).sort()[0], t(9999))
    yield "quantile", lambda t: torch.quantile(t(99, 99), 0.3, dim=0)
    yield "cdist", lambda t: torch.cdist(t(301, 64), t(77, 64))
    yield "renorm", lambda t: torch.renorm(t(99, 99), 2, 0, 1.0)
