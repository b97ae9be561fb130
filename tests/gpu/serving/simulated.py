"""vLLM without its model: the engine core, its scheduler and its clients are real, and steps last as on an H200.

    python -m tests.gpu.serving.simulated -m MODULE [ARGUMENT...]

runs a module in which an engine core computes nothing. For what happens around the engine, on any machine.
"""

from __future__ import annotations

import runpy
import sys
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput

from runner.engines.vllm.executors import die_with_parent
from tests.gpu.serving.tokenizer import VOCABULARY

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput

# Of a model of the shape of Llama 3 8B in bf16 (docs/performance-gpu.md): seconds.
_STEP = 0.0045
_PROMPT_TOKEN = 21.5e-6
_SEQUENCE = 29e-6  # that gets its next token
_TOKEN_BYTES = 4096  # of the one layer that there seems to be
_TOKENS_IN_CACHE = 900_000


class _Later(Future[ModelRunnerOutput]):
    """What a step gives, at the time when it has ended."""

    def __init__(self, output: ModelRunnerOutput, due: float) -> None:
        super().__init__()
        self._output = output
        self._due = due

    def result(self, timeout: float | None = None) -> ModelRunnerOutput:
        time.sleep(max(0.0, self._due - time.monotonic()))
        return self._output


class SimulatedExecutor(Executor):  # type: ignore[misc] # vLLM is in another environment
    """One GPU that takes one step after the other."""

    def _init_executor(self) -> None:
        die_with_parent()
        self._prompts: dict[str, int] = {}  # how long they are
        self._ends = 0.0  # the last step
        self._output: ModelRunnerOutput | None = None

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def execute_model(self, step: SchedulerOutput, non_block: bool = False) -> Any:
        for finished in step.finished_req_ids:
            self._prompts.pop(finished, None)
        cached = step.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request in step.scheduled_new_reqs:
            self._prompts[request.req_id] = len(request.prompt_token_ids or ())
            computed[request.req_id] = request.num_computed_tokens
        seconds, ids, tokens = _STEP, [], []
        for request_id, before in computed.items():
            scheduled = step.num_scheduled_tokens[request_id]
            left = self._prompts[request_id] - before
            seconds += scheduled * _PROMPT_TOKEN if left > 0 else _SEQUENCE
            ids.append(request_id)
            tokens.append([before % VOCABULARY] if scheduled >= left else [])
        self._output = ModelRunnerOutput(ids, {name: place for place, name in enumerate(ids)}, tokens)
        if ids:
            self._ends = max(self._ends, time.monotonic()) + seconds
        return _done(None) if ids else _done(self._output)

    def sample_tokens(self, grammar: object, non_block: bool = False) -> Any:
        assert self._output is not None
        return _Later(self._output, self._ends)

    def collective_rpc(self, method: Any, *_args: Any, **_kwargs: Any) -> list[Any]:
        layer = FullAttentionSpec(
            block_size=self.cache_config.block_size, num_kv_heads=8, head_size=128, dtype=torch.bfloat16
        )
        answers = {
            "get_kv_cache_spec": {"layer": layer},
            "determine_available_memory": _TOKENS_IN_CACHE * _TOKEN_BYTES,
            "get_supported_tasks": ("generate",),
        }
        return [answers[method]] if method in answers else []

    def check_health(self) -> None:
        """It is well."""


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _class_for(config: VllmConfig) -> type[Executor]:
    # By its name for other processes, not as of __main__.
    from tests.gpu.serving.simulated import SimulatedExecutor as Named

    config.scheduler_config.async_scheduling = True  # as on a GPU; vLLM switches it off for CPUs
    return Named


def main() -> None:
    sys.argv = sys.argv[2:]
    Executor.get_class = staticmethod(_class_for)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
