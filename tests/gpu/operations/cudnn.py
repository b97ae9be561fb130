"""cuDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

from .inputs import BF16, DEVICE, F16, F32, I32, Operation, gradients

if TYPE_CHECKING:
    from collections.abc import Iterator


def cudnn() -> Iterator[tuple[str, Operation]]:
    for dtype in (F32, F16, BF16):
        yield f"conv1d {dtype}", lambda t, d=dtype: F.conv1d(t(4, 16, 333, dtype=d), t(32, 16, 5, dtype=d))
        for kernel, stride in ((1, 1), (3, 1), (3, 2), (7, 2)):
            yield (
                f"conv2d {kernel}/{stride} {dtype}",
                lambda t, d=dtype, k=kernel, s=stride: F.conv2d(
                    t(4, 32, 56, 56, dtype=d), t(64, 32, k, k, dtype=d), stride=s, padding=k // 2
                ),
            )
        yield (
            f"conv2d channels last {dtype}",
            lambda t, d=dtype: F.conv2d(
                t(4, 32, 56, 56, dtype=d).to(memory_format=torch.channels_last), t(64, 32, 3, 3, dtype=d)
            ),
        )
        yield (
            f"conv3d {dtype}",
            lambda t, d=dtype: F.conv3d(t(2, 8, 12, 24, 24, dtype=d), t(16, 8, 3, 3, 3, dtype=d)),
        )
        yield (
            f"conv_transpose2d {dtype}",
            lambda t, d=dtype: F.conv_transpose2d(
                t(4, 16, 28, 28, dtype=d), t(16, 8, 4, 4, dtype=d), stride=2
            ),
        )
        yield (
            f"depthwise {dtype}",
            lambda t, d=dtype: F.conv2d(t(4, 32, 28, 28, dtype=d), t(32, 1, 3, 3, dtype=d), groups=32),
        )
        yield (
            f"batch_norm {dtype}",
            lambda t, d=dtype: F.batch_norm(t(8, 32, 28, 28, dtype=d), None, None, training=True),
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            yield (
                f"{kind.__name__} {dtype}",
                lambda t, d=dtype, kind=kind: kind(32, 64, 2).to(DEVICE, d)(t(12, 4, 32, dtype=d))[0],
            )
    yield "conv2d backward", lambda t: gradients(F.conv2d, t(4, 32, 28, 28), t(64, 32, 3, 3))
    yield (
        "ctc_loss",
        lambda t: F.ctc_loss(
            t(50, 4, 20).log_softmax(2),
            t(4, 12, dtype=I32, low=1, high=20).cpu().flatten(),
            torch.full((4,), 50, dtype=I32),
            torch.full((4,), 12, dtype=I32),
        ),
    )
