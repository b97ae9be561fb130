"""Operations on a GPU whose results are compared bit by bit: PyTorch's own kernels and NVIDIA's libraries.

Inputs are made on the CPU from a seed that depends on the operation's name alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

F16, BF16, F32, F64, C64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64
DEVICE = "cuda"
I8, I32, I64 = torch.int8, torch.int32, torch.int64


class Inputs:
    """Tensors for one operation: `inputs(shape..., dtype=..)`; normal, or uniform over small integers."""

    def __init__(self, name: str) -> None:
        self.seed = zlib.crc32(name.encode())
        self.generator = torch.Generator().manual_seed(self.seed)
        torch.manual_seed(self.seed)

    def __call__(self, *shape: int, dtype: torch.dtype = F32, low: int = -100, high: int = 100) -> Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            base = torch.randn(shape, generator=self.generator, dtype=C64 if dtype.is_complex else F32)
        else:
            base = torch.randint(low, high, shape, generator=self.generator)
        return base.to(dtype).to(DEVICE)

    def positive(self, size: int, dtype: torch.dtype = F32) -> Tensor:
        """A symmetric positive definite matrix, or several."""
        half = self(3, size, size, dtype=dtype)
        return half @ half.mH + size * torch.eye(size, dtype=dtype).to(DEVICE)


Operation = Callable[[Inputs], Any]

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


def _pointwise() -> Iterator[tuple[str, Operation]]:
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


def _reductions() -> Iterator[tuple[str, Operation]]:
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


def _indexing() -> Iterator[tuple[str, Operation]]:
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


def _cublas() -> Iterator[tuple[str, Operation]]:
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


def _cusolver() -> Iterator[tuple[str, Operation]]:
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


def _cusparse() -> Iterator[tuple[str, Operation]]:
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


def _cufft() -> Iterator[tuple[str, Operation]]:
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


def _cudnn() -> Iterator[tuple[str, Operation]]:
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
    yield "conv2d backward", lambda t: _gradients(F.conv2d, t(4, 32, 28, 28), t(64, 32, 3, 3))
    yield (
        "ctc_loss",
        lambda t: F.ctc_loss(
            t(50, 4, 20).log_softmax(2),
            t(4, 12, dtype=I32, low=1, high=20).cpu().flatten(),
            torch.full((4,), 50, dtype=I32),
            torch.full((4,), 12, dtype=I32),
        ),
    )


def _gradients(function: Callable[..., Tensor], *tensors: Tensor) -> list[Tensor]:
    wanted = [tensor.requires_grad_() for tensor in tensors]
    result = function(*wanted)
    return [result, *torch.autograd.grad(result.float().square().sum(), wanted)]


def _networks() -> Iterator[tuple[str, Operation]]:
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
        lambda t: _gradients(lambda x: F.cross_entropy(x, torch.arange(99).to(DEVICE)), t(99, 777)),
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
        return _gradients(partial(F.scaled_dot_product_attention, is_causal=causal), *tensors)


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


def _curand(_: Inputs) -> Tensor:
    """Straight from the library: PyTorch links it, and makes its own random numbers."""
    library = ctypes.CDLL("libcurand.so.10")
    result = torch.zeros(9999, device=DEVICE)
    generator = ctypes.c_void_p()
    calls = [
        lambda: library.curandCreateGenerator(ctypes.byref(generator), 161),  # Philox
        lambda: library.curandSetPseudoRandomGeneratorSeed(generator, ctypes.c_ulonglong(7)),
        lambda: library.curandGenerateUniform(
            generator, ctypes.c_void_p(result.data_ptr()), ctypes.c_size_t(9999)
        ),
    ]
    for call in calls:
        if status := call():
            raise RuntimeError(f"cuRAND {status}")
    torch.cuda.synchronize()
    return result


def _nccl() -> Iterator[tuple[str, Operation]]:
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


def operations() -> dict[str, Operation]:
    """All of them by name."""
    found: dict[str, Operation] = {"curand uniform": _curand}
    for group in (
        _pointwise,
        _reductions,
        _indexing,
        _cublas,
        _cusolver,
        _cusparse,
        _cufft,
        _cudnn,
        _networks,
        _nccl,
    ):
        found.update(group())
    return found


def digest(result: Any) -> str:
    """sha256 of the bits of all tensors in a result, with their types and shapes."""
    state = hashlib.sha256()
    for tensor in _tensors(result):
        plain = tensor.detach().cpu().contiguous()
        state.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        state.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    else:
        for part in result:
            yield from _tensors(part)
