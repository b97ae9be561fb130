"""What networks are made of, by PyTorch's own kernels: attention, norms, losses, optimisers, random numbers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from .inputs import BF16, DEVICE, F16, F32, Inputs, Operation, gradients

if TYPE_CHECKING:
    from collections.abc import Iterator


def networks() -> Iterator[tuple[str, Operation]]:
    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH", "CUDNN_ATTENTION"):
        for causal in (False, True):
            yield f"attention {backend} {causal}", lambda t, b=backend, c=causal: _attention(t, b, causal=c)
    for dtype in (F32, F16, BF16):
        yield (
            f"softmax {dtype}",
            lambda t, d=dtype: (t(301, 1777, dtype=d).softmax(1), t(301, 77, dtype=d).log_softmax(0)),
        )
        yield f"layer_norm {dtype}", lambda t, d=dtype: F.layer_norm(t(301, 777, dtype=d), (777,))
        yield f"rms_norm {dtype}", lambda t, d=dtype: F.rms_norm(t(301, 777, dtype=d), (777,))
        yield f"group_norm {dtype}", lambda t, d=dtype: F.group_norm(t(4, 32, 28, 28, dtype=d), 8)
    yield (
        "cross_entropy backward",
        lambda t: gradients(lambda x: F.cross_entropy(x, torch.arange(99).to(DEVICE)), t(99, 777)),
    )
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"):
        yield name, lambda t, name=name: getattr(F, name)(t(301, 77), t(301, 77).softmax(1))
    yield (
        "pools",
        lambda t: [
            pool(t(4, 8, 29, 29), 3)
            for pool in (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d)
        ],
    )
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        yield (
            f"interpolate {mode}",
            lambda t, mode=mode: F.interpolate(t(2, 3, 29, 29), size=(50, 41), mode=mode),
        )
    yield "grid_sample", lambda t: F.grid_sample(t(2, 3, 29, 29), t(2, 20, 20, 2).tanh(), align_corners=False)
    yield (
        "pads",
        lambda t: [
            F.pad(t(2, 3, 9, 9), (2, 1, 3, 2), mode)
            for mode in ("constant", "reflect", "replicate", "circular")
        ],
    )
    yield "unfold fold", lambda t: F.fold(F.unfold(t(2, 3, 16, 16), 4, stride=4), 16, 4, stride=4)
    yield "pixel_shuffle", lambda t: F.pixel_shuffle(t(2, 16, 9, 9), 4)
    yield "fake_quantize", lambda t: torch.fake_quantize_per_tensor_affine(t(301, 77), 0.05, 3, -128, 127)
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        for how in ("foreach", "fused"):
            yield f"{kind.__name__} {how}", lambda t, kind=kind, how=how: _optimised(t, kind, how)
    yield "transformer backward", _transformer
    yield "dropout", lambda t: F.dropout(t(301, 77), 0.3)
    for name in ("rand", "randn"):
        yield name, lambda _, name=name: getattr(torch, name)(301, 77, device=DEVICE)
    yield (
        "randint randperm",
        lambda _: (torch.randint(99, (999,), device=DEVICE), torch.randperm(9999, device=DEVICE)),
    )
    yield (
        "multinomial bernoulli",
        lambda t: (torch.multinomial(x := t(9, 99).softmax(1), 20), torch.bernoulli(x)),
    )
    for name in ("exponential_", "cauchy_", "log_normal_", "geometric_"):
        yield name, lambda t, name=name: getattr(t(301, 77), name)(*([0.3] if name == "geometric_" else []))


def _attention(inputs: Inputs, backend: str, *, causal: bool) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tensors = [inputs(2, 8, 257, 64, dtype=BF16) for _ in range(3)]
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return gradients(partial(F.scaled_dot_product_attention, is_causal=causal), *tensors)


def _optimised(inputs: Inputs, kind: type[torch.optim.Optimizer], how: str) -> list[Tensor]:
    weights = [inputs(99, 77), inputs(77)]
    optimiser = kind([weight.requires_grad_() for weight in weights], lr=0.1, **{how: True})
    for _ in range(3):
        for weight in weights:
            weight.grad = inputs(*weight.shape)
        optimiser.step()
    return weights


def _transformer(inputs: Inputs) -> list[Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True).to(DEVICE)
    layer(inputs(4, 50, 128)).square().sum().backward()
    return [weight.grad for weight in layer.parameters()]
