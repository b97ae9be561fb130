"""PyTorch's own kernels: element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from .inputs import BF16, F16, F32, I32, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "i0",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "isnan",
    "signbit",
    "nan_to_num",
]
_ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "atan2",
    "fmod",
    "remainder",
    "maximum",
    "minimum",
    "hypot",
    "copysign",
    "logaddexp",
    "nextafter",
    "xlogy",
    "eq",
    "lt",
]
_INTEGER = ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "floor_divide", "remainder", "mul"]
_SPECIAL = [
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "i0e",
    "i1",
    "i1e",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "modified_bessel_k0",
    "zeta",
]


def pointwise() -> Iterator[tuple[str, Operation]]:
    for name in _UNARY:
        for dtype in (F32, F16, BF16):
            yield (
                f"{name} {dtype}",
                lambda t, name=name, dtype=dtype: getattr(torch, name)(t(301, 77, dtype=dtype)),
            )
    for name in _ACTIVATIONS:
        yield name, lambda t, name=name: getattr(F, name)(t(301, 77))
    for name in _BINARY:
        for dtype in (F32, BF16):
            yield (
                f"{name} {dtype}",
                lambda t, name=name, dtype=dtype: getattr(torch, name)(
                    t(301, 77, dtype=dtype), t(77, dtype=dtype)
                ),
            )
    for name in _INTEGER:
        yield (
            f"{name} int",
            lambda t, name=name: getattr(torch, name)(t(301, 77, dtype=I32, low=1), t(77, dtype=I32, low=1)),
        )
    for name in _SPECIAL:
        yield (
            name,
            lambda t, name=name: getattr(torch.special, name)(
                *([t(301).abs() + 2] * (2 if name == "zeta" else 1))
            ),
        )
