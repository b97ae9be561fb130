"""cuFFT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .inputs import C64, DEVICE, F16, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def cufft() -> Iterator[tuple[str, Operation]]:
    fft = torch.fft
    for size in (64, 1000, 1009, 4096, 7919, 65536):
        yield f"fft {size}", lambda t, n=size: fft.fft(t(7, n, dtype=C64))
        yield f"rfft irfft {size}", lambda t, n=size: fft.irfft(fft.rfft(t(7, n)), n)
    # Kernels of each size and kind are pieces of their own in cuFFT's store.
    for low in (2, 34, 66, 98):
        yield (
            f"fft {low}-{low + 31}",
            lambda t, low=low: [fft.fft(t(5, n, dtype=C64)) for n in range(low, low + 32)],
        )
    yield "fft double 2-33", lambda t: [fft.fft(t(5, n, dtype=torch.complex128)) for n in range(2, 34)]
    yield "rfft 2-33", lambda t: [fft.rfft(t(5, n)) for n in range(2, 34)]
    yield "fft half 2-32768", lambda t: [fft.rfft(t(3, 1 << power, dtype=F16)) for power in range(1, 16)]
    yield "fft 2-1048576", lambda t: [fft.fft(t(2, 1 << power, dtype=C64)) for power in range(1, 21)]
    yield "fft double", lambda t: fft.ifft(t(7, 1000, dtype=torch.complex128))
    yield "fft half", lambda t: fft.rfft(t(7, 1024, dtype=F16))
    yield "fft2", lambda t: fft.fft2(t(3, 60, 90, dtype=C64))
    yield "fftn", lambda t: fft.fftn(t(12, 30, 45, dtype=C64))
    yield "rfft2", lambda t: fft.rfft2(t(3, 60, 90))
    yield (
        "stft",
        lambda t: torch.stft(t(2, 9999), 400, window=torch.hann_window(400).to(DEVICE), return_complex=True),
    )
