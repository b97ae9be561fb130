"""What is asked inside the engine's environment: run by its interpreter; prints one line of JSON.

    python inside.py versions|parameters|refusals|libraries
    python inside.py reference MODEL_DIR COUNT ID,ID,... ...

Besides the standard library it imports TensorRT-LLM, or PyTorch and transformers, and those modules of ours
that the engine process imports.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_VALUES: dict[str, Any] = {
    "decoupled_mode": True,
    "batching_strategy": "inflight_fused_batching",
    "gpt_model_type": "inflight_fused_batching",
    "batch_scheduler_policy": "max_utilization",
    "kv_cache_free_gpu_mem_fraction": 0.5,
    "max_tokens_in_paged_kv_cache": 2560,
    "max_attention_window_size": "4096,1024",
    "sink_token_length": 0,
    "kv_cache_host_memory_bytes": 10**9,
    "kv_cache_onboard_blocks": False,
    "enable_kv_cache_reuse": False,
    "enable_chunked_context": True,
    "max_queue_size": 8,
    "enable_trt_overlap": True,
    "gpu_weights_percent": 0.25,
    "gpu_device_ids": "0,1",
    "decoding_mode": "top_k_top_p",
    "multi_block_mode": False,
    "enable_context_fmha_fp32_acc": True,
    "cuda_graph_mode": True,
    "cuda_graph_cache_size": 8,
}


def _executor() -> Any:
    return import_module("tensorrt_llm.bindings.executor")


def versions() -> dict[str, str]:
    """The versions of what was imported, in the way the engine process imports it."""
    _executor()
    found = {"tensorrt_llm": import_module("tensorrt_llm").__version__}
    for name in ("tensorrt_cu13", "torch", "mpi4py"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def parameters() -> list[str]:
    """What the binding does not accept of what we pass; nothing when all is well."""
    from runner.engines.tensorrt_llm.config import executor_config
    from runner.engines.tensorrt_llm.requests import executor_request
    from runner.protocol.engine import FinishReason, Request, SamplingParameters
    from shared.server_arguments import EFFECTIVE, parse_parameters

    api = _executor()
    problems = [f"no value to try {name} with" for name in EFFECTIVE if name not in _VALUES]

    def attempt(what: str, make: Callable[[], object]) -> None:
        try:
            make()
        except Exception as error:
            problems.append(f"{what}: {type(error).__name__}: {str(error).splitlines()[0]}")

    def made(arguments: dict[str, Any]) -> None:
        executor_config(api, parse_parameters(arguments))

    for name, value in _VALUES.items():
        attempt(name, partial(made, {name: value}))
    sampling = SamplingParameters(4, 0.5, 0.5, 3, 7, 1.0, 1.1, 0.1, 0.1, 0.1)
    request = Request(1, [1, 2], 3, stop_words=[[3]], bad_words=[[4]], sampling=sampling)
    attempt("a request", partial(executor_request, api, request, (5, 6)))
    ends = {reason.name for reason in FinishReason}
    problems += [f"no FinishReason.{name}" for name in sorted(ends - {one.name for one in api.FinishReason})]
    return problems


def refusals() -> list[str]:
    """What the binding accepts although we assume that it does not, and refuse it ourselves."""
    api = _executor()
    values: tuple[tuple[type, str, float], ...] = (
        (api.KvCacheConfig, "sink_token_length", 0),
        (api.KvCacheConfig, "free_gpu_memory_fraction", 0.0),
        (api.KvCacheConfig, "free_gpu_memory_fraction", 1.0),
        (api.SamplingConfig, "top_p", 0.0),
    )
    taken = []
    for kind, name, value in values:
        try:
            kind(**{name: value})
        except RuntimeError:
            continue
        taken.append(f"{name}={value}")
    return taken


def libraries() -> list[str]:
    """The shared libraries of TensorRT-LLM that cannot be loaded, and why; those of Python by both names."""
    _executor()
    folder = Path(import_module("tensorrt_llm").__file__ or "").parent
    major, minor = sys.version_info[:2]
    wanted = [f"libpython{major}.{minor}.so", f"libpython{major}.{minor}.so.1.0"]
    problems = []
    for library in (*wanted, *sorted(str(path) for path in folder.rglob("*.so*"))):
        try:
            ctypes.CDLL(library)
        except OSError as error:
            problems.append(f"{Path(library).name}: {error}")
    return problems


def reference(model_dir: str, count: str, *prompts: str) -> list[dict[str, list[float]]]:
    """The likeliest tokens of the checkpoint in float32, and how much likelier each was than the next."""
    torch = import_module("torch")
    model = import_module("transformers").AutoModelForCausalLM.from_pretrained(
        model_dir, torch_dtype="float32"
    )
    answers = []
    for prompt in prompts:
        ids = [int(token) for token in prompt.split(",")]
        tokens: list[float] = []
        margins: list[float] = []
        with torch.no_grad():
            for _ in range(int(count)):
                logits = model(torch.tensor([[*ids, *tokens]])).logits[0][-1].tolist()
                first, second = sorted(range(len(logits)), key=logits.__getitem__)[:-3:-1]
                tokens.append(first)
                margins.append(logits[first] - logits[second])
        answers.append({"tokens": tokens, "margins": margins})
    return answers


if __name__ == "__main__":
    told = globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(f"\n{json.dumps(told)}\n")
