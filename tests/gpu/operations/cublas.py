"""cuBLAS and cuBLASLt."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from .inputs import BF16, C64, DEVICE, F16, F32, F64, I8, Inputs, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def cublas() -> Iterator[tuple[str, Operation]]:
    for dtype in (F16, BF16, F32, F64, C64):
        for rows, inner, columns in ((256, 512, 384), (1, 1024, 1000), (77, 33, 129), (2048, 2048, 2048)):
            yield (
                f"mm {dtype} {rows}x{inner}x{columns}",
                lambda t, d=dtype, m=rows, k=inner, n=columns: t(m, k, dtype=d) @ t(k, n, dtype=d),
            )
        yield f"bmm {dtype}", lambda t, d=dtype: torch.bmm(t(13, 65, 64, dtype=d), t(13, 64, 33, dtype=d))
        yield (
            f"mv dot {dtype}",
            lambda t, d=dtype: (t(301, 99, dtype=d) @ (x := t(99, dtype=d)), torch.dot(x, x)),
        )
    yield "mm tf32", partial(_tf32)
    yield (
        "addmm gelu",
        lambda t: torch._addmm_activation(
            t(256, dtype=F16), t(64, 128, dtype=F16), t(128, 256, dtype=F16), use_gelu=True
        ),
    )
    yield "linear", lambda t: F.linear(t(64, 128, dtype=BF16), t(256, 128, dtype=BF16), t(256, dtype=BF16))
    # cuBLASLt, whose kernels are partly in a store.
    for rows, inner, columns in ((64, 128, 256), (32, 4096, 1024), (2048, 512, 2048), (512, 8192, 512)):
        shape = f"{rows}x{inner}x{columns}"
        for dtype in (F16, BF16, F32):
            yield (
                f"linear {dtype} {shape}",
                lambda t, d=dtype, m=rows, k=inner, n=columns: F.linear(
                    t(m, k, dtype=d), t(n, k, dtype=d), t(n, dtype=d)
                ),
            )
        yield (
            f"int_mm {shape}",
            lambda t, m=rows, k=inner, n=columns: torch._int_mm(t(m, k, dtype=I8), t(k, n, dtype=I8)),
        )
        for out in (BF16, F16, F32):
            yield f"scaled_mm {out} {shape}", partial(_scaled_mm, sizes=(rows, inner, columns), out=out)
    yield (
        "triangular solve",
        lambda t: torch.linalg.solve_triangular(t.positive(65).triu(), t(3, 65, 9), upper=True),
    )
    yield "baddbmm", lambda t: torch.baddbmm(t(13, 65, 33), t(13, 65, 64), t(13, 64, 33))


def _tf32(inputs: Inputs) -> Tensor:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return inputs(513, 512) @ inputs(512, 384)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def _scaled_mm(inputs: Inputs, sizes: tuple[int, int, int], out: torch.dtype) -> Tensor:
    rows, inner, columns = sizes
    one = torch.ones((), device=DEVICE)
    left = inputs(rows, inner).to(torch.float8_e4m3fn)
    right = inputs(columns, inner).to(torch.float8_e4m3fn).t()
    return torch._scaled_mm(left, right, one, one, out_dtype=out)
