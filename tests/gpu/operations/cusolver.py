"""cuSOLVER."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .inputs import C64, F32, F64, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def cusolver() -> Iterator[tuple[str, Operation]]:
    linalg = torch.linalg
    for dtype in (F32, F64, C64):
        for name in (
            "cholesky",
            "inv",
            "qr",
            "eigvalsh",
            "eigh",
            "svdvals",
            "svd",
            "lu_factor",
            "det",
            "slogdet",
            "matrix_exp",
        ):
            yield f"{name} {dtype}", lambda t, name=name, d=dtype: getattr(linalg, name)(t.positive(96, d))
        yield f"solve {dtype}", lambda t, d=dtype: linalg.solve(t.positive(96, d), t(3, 96, 5, dtype=d))
    yield "lstsq", lambda t: linalg.lstsq(t(99, 65), t(99, 5)).solution
    yield "pinv", lambda t: linalg.pinv(t(99, 65))
    yield "cholesky large", lambda t: linalg.cholesky(t.positive(700)[0])
    yield "eigh large", lambda t: linalg.eigh(t.positive(300)[0])
    yield "eig", lambda t: linalg.eigvals(t(65, 65))
    yield "ldl_factor", lambda t: linalg.ldl_factor(t.positive(96))
    yield "householder_product", lambda t: linalg.householder_product(*torch.geqrf(t(65, 33)))
