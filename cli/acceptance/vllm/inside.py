"""What is asked inside vLLM's environment: run by its interpreter; prints one line of JSON.

    python -P inside.py versions|gpus|interface|libraries
    python -P inside.py reference ENGINE_DIR COUNT ID,ID,... ...

Besides the standard library it imports vLLM and PyTorch, and those modules of ours that the engine process
imports.
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from runner.engines.vllm.environment import vllm_environment
from runner.engines.vllm.settings import engine_arguments, known_to

_ATTRIBUTES = {
    "vllm.v1.engine.core_client:SyncMPClient": "add_request abort_requests shutdown",
    "vllm.v1.engine:EngineCoreOutput": "request_id new_token_ids finish_reason stop_reason new_logprobs",
    "vllm.v1.engine:EngineCoreOutputs": "outputs scheduler_stats",
    "vllm.v1.engine:FinishReason": "STOP LENGTH ABORT ERROR",
    "vllm.v1.metrics.stats:SchedulerStats": "num_running_reqs num_waiting_reqs kv_cache_usage",
    "vllm.usage.usage_lib:UsageContext": "OPENAI_API_SERVER",
    "vllm.v1.executor.abstract:Executor": "get_class",
    "vllm.engine.arg_utils:EngineArgs": "create_engine_config",
}
_CLIENT = {"multiprocess_mode", "asyncio_mode", "vllm_config", "executor_class", "log_stats"}


def versions() -> dict[str, str]:
    """The versions of what is imported."""
    return {name: import_module(name).__version__ for name in ("vllm", "torch", "transformers")}


def gpus() -> dict[str, Any]:
    """What PyTorch sees."""
    torch = import_module("torch")
    return {"gpus": torch.cuda.device_count(), "cuda": torch.version.cuda or ""}


def interface() -> list[str]:
    """What vLLM lacks of what the engine uses; nothing when all is well."""
    problems = []
    for place, names in _ATTRIBUTES.items():
        module, _, name = place.partition(":")
        there = getattr(import_module(module), name)
        known = {*dir(there), *getattr(there, "__annotations__", ())}
        problems += [f"{name} has no {one}" for one in names.split() if one not in known]
    client = import_module("vllm.v1.engine.core_client").EngineCoreClient
    missing = _CLIENT - inspect.signature(client.make_client).parameters.keys()
    problems += [f"make_client does not accept {name}" for name in sorted(missing)]
    from runner.engines.vllm.requests import core_request
    from runner.protocol.engine import Limits, Request, SamplingParameters

    sampling = SamplingParameters(4, 0.5, 0.5, 3, 7, None, 1.1, 0.1, 0.1, 0.1)
    request = Request(1, [1, 2], 3, stop_words=[[3]], bad_words=[[4]], sampling=sampling)
    try:
        core_request(request, Limits(sequence=9, prompt=8, vocabulary=9), 0)
    except Exception as error:
        problems.append(f"a request: {type(error).__name__}: {str(error).splitlines()[0]}")
    return problems


def libraries() -> list[str]:
    """The shared libraries of vLLM that cannot be loaded, and why."""
    import_module("torch")
    spec = importlib.util.find_spec("vllm")
    folder = Path((spec and spec.origin) or "").parent
    return [problem for path in sorted(folder.rglob("*.so")) if (problem := _not_loaded(path))]


def _not_loaded(library: Path) -> str:
    """Why it cannot be loaded, tried in its own process: some register what others do, for other CPUs."""
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            os.write(write, f"{library.name}: {error}".encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as said:  # noqa: PTH123 - it is not a file
        problem = said.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return problem or (f"{library.name}: it ends the process" if status else "")


def reference(engine_dir: str, count: str, *prompts: str) -> dict[str, Any]:
    """The tokens of vLLM's LLM class, prompt by prompt, and how much likelier each was than the next.

    Also the longest sequence, prompt and answer, that this engine accepts.
    """
    with vllm_environment():
        vllm = import_module("vllm")
        known = import_module("vllm.engine.arg_utils").EngineArgs
        llm = vllm.LLM(**known_to(known, engine_arguments(Path(engine_dir))))
        sampling = vllm.SamplingParams(
            temperature=0, max_tokens=int(count), detokenize=False, ignore_eos=True, logprobs=2
        )
        answers = []
        for prompt in prompts:
            asked = {"prompt_token_ids": [int(token) for token in prompt.split(",")]}
            (output,) = llm.generate([asked], sampling, use_tqdm=False)
            written = output.outputs[0]
            margins = []
            for choices in written.logprobs:
                first, second = sorted((choice.logprob for choice in choices.values()), reverse=True)[:2]
                margins.append(first - second)
            answers.append({"tokens": list(written.token_ids), "margins": margins})
        return {"answers": answers, "max_model_len": llm.llm_engine.model_config.max_model_len}


if __name__ == "__main__":
    told = globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(f"\n{json.dumps(told)}\n")
    sys.stdout.flush()
    os._exit(0)  # vLLM says goodbye on stdout
