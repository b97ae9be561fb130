"""The variables that Triton and the engine get: those that they, CUDA and MPI use, and no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.secrets import names_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAMES = frozenset(
    (
        "HOME", "LANG", "LANGUAGE", "LOG_LEVEL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
        "ALLOW_MODEL_CODE", "COG_TRITON_HOME", "LORA_FOLDER",
        "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "SSL_CERT_FILE",
        "TRANSFORMERS_OFFLINE", "FORCE_DETERMINISTIC",
    )
)  # fmt: skip
_PREFIXES = (
    "LC_", "MALLOC_", "PYTHON", "XDG_",
    "CT2_", "CUBLAS_", "CUDA_", "CUDNN_", "NVIDIA_", "TORCH", "PYTORCH_",
    "TLLM_", "TRITON_", "TRTLLM_", "VLLM_",
    "GLOO_", "MKL_", "NUMEXPR_", "OMP_", "OPENBLAS_", "TBB_",
    "FI_", "NCCL_", "NVSHMEM_", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "RAY_", "SLURM_", "UCC_", "UCX_",
)  # fmt: skip


def engine_environment(environment: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The part of `environment` that Triton and the engine get; `more` are names that the operator adds."""
    added = frozenset(more)
    return {
        name: value
        for name, value in environment.items()
        if name in added or ((name in _NAMES or name.startswith(_PREFIXES)) and not names_secret(name))
    }
