"""cuSPARSE and cuSPARSELt."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .inputs import BF16, DEVICE, F16, F32, F64, I8, I64, Inputs, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def cusparse() -> Iterator[tuple[str, Operation]]:
    def sparse(inputs: Inputs, dtype: torch.dtype = F32) -> Tensor:
        dense = inputs(301, 301, dtype=dtype)
        return dense * (inputs(301, 301) > 1)

    for dtype in (F32, F64, BF16):
        yield f"csr mm {dtype}", lambda t, d=dtype: sparse(t, d).to_sparse_csr() @ t(301, 77, dtype=d)
        yield f"csr mv {dtype}", lambda t, d=dtype: sparse(t, d).to_sparse_csr() @ t(301, dtype=d)
    yield "coo mm", lambda t: torch.sparse.mm(sparse(t).to_sparse(), t(301, 77))
    yield (
        "coo coalesce",
        lambda t: (
            torch.sparse_coo_tensor(t(2, 999, dtype=I64, low=0, high=99), t(999, dtype=I64))
            .coalesce()
            .to_dense()
        ),
    )
    yield "csr csr mm", lambda t: (sparse(t).to_sparse_csr() @ sparse(t).to_sparse_csr()).to_dense()
    yield (
        "sampled_addmm",
        lambda t: torch.sparse.sampled_addmm(sparse(t).to_sparse_csr(), t(301, 64), t(64, 301)).values(),
    )
    yield "csr add", lambda t: (sparse(t).to_sparse_csr() + sparse(t).to_sparse_csr()).to_dense()
    yield (
        "csr triangular solve",
        lambda t: torch.triangular_solve(t(64, 5), t.positive(64)[0].triu().to_sparse_csr())[0],
    )
    yield "bsr mm", lambda t: t(256, 256).to_sparse_bsr((16, 16)) @ t(256, 77)
    yield "sparse softmax", lambda t: torch.sparse.softmax(sparse(t).to_sparse(), 1).to_dense()
    for dtype in (F16, BF16, I8, torch.float8_e4m3fn):
        for size in (256, 1024):
            yield f"semi-structured mm {dtype} {size}", partial(_semi_structured, dtype=dtype, size=size)


def _semi_structured(inputs: Inputs, dtype: torch.dtype, size: int) -> Tensor:
    """By cuSPARSELt, which is called directly: PyTorch may choose CUTLASS."""
    dense = inputs(size, size) * torch.tensor([0, 0, 1, 1]).to(DEVICE).repeat(size, size // 4)
    return torch._cslt_sparse_mm(torch._cslt_compress(dense.to(dtype)), inputs(128, size).to(dtype).t())
