"""The engine: vLLM's engine core in a process of its own, its requests and its steps.

The core is driven through `SyncMPClient`: requests in, one `EngineCoreOutputs` for each engine step out.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import FinishReason, Limits, Output, Statistics
from shared.errors import CogTritonError, VllmUnknownError

from .environment import vllm_environment
from .errors import coded, not_loaded
from .settings import engine_arguments
from .warm_up import warm_up_requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.protocol.engine import Request

    from .sequences import SequenceOutputs

_LOOK_SECONDS = 0.5  # between two looks at the processes while no step comes
_SILENT_SECONDS = 60.0  # with work to do and without a step: the core hangs
_WARM_UP_SECONDS = 600.0
_END_SECONDS = 0.5  # for the core to end by itself


class CoreDied(RuntimeError):
    """vLLM's engine core has died, or hangs."""


class VLLMEngine:
    """See `runner.protocol.engine.Engine`."""

    def __init__(self, engine_dir: Path) -> None:
        """Load the model, and try each way of sampling once. Raises E22xx.

        To be called in the main thread: the core ends with the thread that made it.
        """
        arguments = engine_arguments(engine_dir)
        with vllm_environment() as failures:
            self._start(arguments, failures)

    def _start(self, arguments: dict[str, Any], failures: Path) -> None:
        self._client, config = _load(arguments, failures)
        self.limits = Limits(
            sequence=config.model_config.max_model_len,
            prompt=config.model_config.max_model_len - 1,
            vocabulary=config.model_config.get_vocab_size(),
        )
        self._most_log_probs: int = config.model_config.max_logprobs
        self._kv_cache_blocks: int = config.cache_config.num_gpu_blocks or 0
        self._statistics = Statistics(kv_cache_blocks=self._kv_cache_blocks)
        # The client's socket and encoder are not made for two threads.
        self._lock = threading.Lock()
        self._sequences: dict[str, SequenceOutputs] = {}  # by the core's id
        self._cancelled: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._warm_up(failures)

    def submit(self, request: Request) -> None:
        """Raises E1104 for values that vLLM does not take."""
        from .requests import core_request
        from .sequences import SequenceOutputs

        asked = core_request(request, self.limits, self._most_log_probs)
        with self._lock:
            self._sequences[asked.request_id] = SequenceOutputs(request)
            try:
                self._client.add_request(asked)
            except BaseException:
                del self._sequences[asked.request_id]
                raise

    def cancel(self, request_id: int) -> None:
        """Its last output is made here: the core gives none for a request that is aborted."""
        core_id = str(request_id)
        if core_id in self._sequences:
            self._cancelled.put(core_id)
            self._client.outputs_queue.put_nowait(None)  # so that `steps` looks

    def steps(self) -> Iterator[Sequence[Output]]:
        """Raises `CoreDied`, after which the engine is of no use."""
        last_step = time.monotonic()
        while not self._ending.is_set():
            try:
                step = self._client.outputs_queue.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._look_for_death(last_step)
                continue
            if isinstance(step, Exception):
                raise CoreDied from step
            outputs = self._take_cancelled()
            if step is not None:
                last_step = time.monotonic()
                outputs += self._take(step)
            if outputs:
                yield outputs
        self._client.shutdown(timeout=_END_SECONDS)

    def shutdown(self) -> None:
        self._ending.set()
        self._client.outputs_queue.put_nowait(None)

    def statistics(self) -> Statistics:
        return self._statistics

    def _take(self, step: Any) -> list[Output]:
        if (told := step.scheduler_stats) is not None:
            self._statistics = Statistics(
                active_requests=told.num_running_reqs,
                queued_requests=told.num_waiting_reqs + getattr(told, "num_skipped_waiting_reqs", 0),
                kv_cache_blocks=self._kv_cache_blocks,
                kv_cache_blocks_used=round(told.kv_cache_usage * self._kv_cache_blocks),
            )
        outputs = []
        sequences = self._sequences
        for core_output in step.outputs:
            sequence = sequences.get(core_output.request_id)
            if sequence is None:
                continue  # it was cancelled, or has ended with a stop word
            if (output := sequence.take(core_output)) is not None:
                outputs.append(output)
            if sequence.ended:
                del sequences[core_output.request_id]
                if core_output.finish_reason is None:
                    self._abort(core_output.request_id)
        return outputs

    def _take_cancelled(self) -> list[Output]:
        outputs = []
        while not self._cancelled.empty():
            core_id = self._cancelled.get()
            sequence = self._sequences.pop(core_id, None)
            if sequence is not None:
                self._abort(core_id)
                outputs.append(Output(sequence.request_id, finish_reason=FinishReason.CANCELLED))
        return outputs

    def _abort(self, core_id: str) -> None:
        with self._lock:
            self._client.abort_requests([core_id])

    def _look_for_death(self, last_step: float) -> None:
        """A core that is killed leaves its client waiting for ever."""
        if self._client.resources.engine_dead:
            raise CoreDied
        if self._is_stopped():
            raise CoreDied("it was stopped by a signal")
        if self._sequences and time.monotonic() - last_step > _SILENT_SECONDS:
            raise CoreDied(f"it made no step for {_SILENT_SECONDS:g} s")

    def _is_stopped(self) -> bool:
        manager = self._client.resources.engine_manager
        for process in getattr(manager, "processes", ()):
            try:
                stat = Path(f"/proc/{process.pid}/stat").read_bytes()
            except OSError:
                continue
            if stat.rpartition(b")")[2].split()[:1] == [b"T"]:
                return True
        return False

    def _warm_up(self, failures: Path) -> None:
        """Use each way of sampling once: the first use of some compiles a kernel, for seconds."""
        for request in warm_up_requests(self.limits):
            self.submit(request)
        deadline = time.monotonic() + _WARM_UP_SECONDS
        while self._sequences:
            try:
                step = self._client.outputs_queue.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                step = None
            if isinstance(step, Exception) or self._client.resources.engine_dead:
                raise coded([_logged(failures), "the engine core died at its first requests"])
            if time.monotonic() > deadline:
                raise VllmUnknownError(reason=f"its first requests took more than {_WARM_UP_SECONDS:g} s")
            if step is not None:
                for output in self._take(step):
                    if output.error is not None:
                        raise output.error


def _load(arguments: dict[str, Any], failures: Path) -> tuple[Any, Any]:
    """The client of a core that is ready, and its configuration with the values that it settled on."""
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.core_client import EngineCoreClient
        from vllm.v1.executor.abstract import Executor

        from .executors import mortal
    except (ImportError, OSError, RuntimeError) as problem:
        raise not_loaded(problem) from problem
    try:
        # The defaults of batch sizes are those of a server.
        config = EngineArgs(**arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
        executor = mortal(Executor.get_class(config))
    except CogTritonError:
        raise
    except Exception as problem:
        raise coded([f"{type(problem).__name__}: {problem}"]) from problem
    try:
        client = EngineCoreClient.make_client(
            multiprocess_mode=True,
            asyncio_mode=False,
            vllm_config=config,
            executor_class=executor,
            log_stats=True,
        )
    except Exception as problem:
        # The cause is only in what the core has logged.
        raise coded([_logged(failures), f"{type(problem).__name__}: {problem}"]) from problem
    return client, config


def _logged(failures: Path) -> str:
    return failures.read_text(errors="replace") if failures.exists() else ""
