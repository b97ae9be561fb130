"""The engine: vLLM's engine core in a process of its own, its requests and its steps.

The core is driven through `SyncMPClient`: requests in, one `EngineCoreOutputs` for each engine step out.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import FinishReason, Limits, Output, Statistics
from shared.errors import CogTritonError, VllmArgumentInvalid, VllmUnknownError
from shared.lora import ADAPTERS

from .adapters import Adapters
from .compile_cache import use_compile_cache
from .environment import vllm_environment
from .errors import coded, not_loaded
from .grammars import BACKEND, Grammars
from .nodes import nodes_of
from .preparing import Preparing
from .settings import engine_arguments, known_to
from .tokenizer import core_tokenizer
from .warm_up import STRUCTURED, structured_warm_up, warm_up_requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.protocol.engine import Request

    from .nodes import Nodes
    from .sequences import SequenceOutputs

_LOOK_SECONDS = 0.5  # between two checks of the processes while no step comes
_SILENT_SECONDS = 60.0  # without a step although there is work: the core hangs
_WARM_UP_SECONDS = 600.0
_END_SECONDS = 0.5  # for the core to end by itself
_CALL_SECONDS = 300.0
_CALLS = itertools.count(1)
_STRUCTURED = "structured_output"  # its name in the catalogue


class CoreDied(RuntimeError):
    """vLLM's engine core has died, or hangs."""


def lacking(config: Any, *, has_adapters: bool) -> frozenset[str]:
    """What vLLM can do, but not as this engine is configured: it would ignore it without a word."""
    lacks: set[str] = set()
    if not has_adapters:
        lacks |= {"lora"}
    if config.scheduler_config.policy != "priority":
        lacks |= {"priority"}
    if config.speculative_config is not None:  # its core logs that they have no effect then
        lacks |= {"min_p", "logit_bias"}
        if config.speculative_config.method == "ngram_gpu":
            # Its guesses end in -1, at which the core dies: https://github.com/vllm-project/vllm/issues/47025
            lacks |= {_STRUCTURED}
    return frozenset(lacks)


class VLLMEngine:
    """See `runner.protocol.engine.Engine`."""

    def __init__(self, engine_dir: Path) -> None:
        """Load the model, and try each way of sampling once. Raises vLLM's errors (E22xx), and on
        several hosts HostsMissing, HostLost and the error of a host that cannot do its part.

        Call it in the main thread: the core ends with the thread that made it.
        """
        arguments = engine_arguments(engine_dir)
        chosen = (arguments.get("structured_outputs_config") or {}).get("backend", "auto")
        if chosen not in ("auto", BACKEND):
            raise VllmArgumentInvalid(
                reason=f"the backend of structured_outputs_config can only be {BACKEND}"
            )
        with vllm_environment() as failures:
            self._nodes = nodes_of(arguments, engine_dir)
            hosts = 1 if self._nodes is None else self._nodes.place.nodes
            arguments |= use_compile_cache(engine_dir, arguments, hosts)
            files = engine_dir / "tokenizer"
            tokenizer = core_tokenizer(files, failures.parent / "tokenizer")
            if tokenizer is not None:
                arguments |= {"tokenizer": str(tokenizer.directory), "skip_tokenizer_init": False}
            self._client, config = _load(arguments, failures, self._nodes)
            grammars = None
            if tokenizer is not None:
                self._grammar_end = tokenizer.end_id
                vocabulary = config.model_config.get_vocab_size()
                grammars = Grammars(files / "tokenizer.json", vocabulary, tokenizer.end_id)
            self._adapters_held = self._adapters(config, engine_dir / ADAPTERS)
            self._start(config, grammars, failures)

    def _adapters(self, config: Any, own: Path) -> Adapters | None:
        """The operator's adapters, or else the engine's own."""
        given, lora = os.environ.get("LORA_FOLDER"), config.lora_config
        folder = Path(given) if given else own
        if lora is None or not (given or own.is_dir()):
            return None
        return Adapters(folder, lora.max_cpu_loras or lora.max_loras, self._call)

    def _start(self, config: Any, grammars: Grammars | None, failures: Path) -> None:
        self.limits = Limits(
            sequence=config.model_config.max_model_len,
            prompt=config.model_config.max_model_len - 1,
            vocabulary=config.model_config.get_vocab_size(),
        )
        self._most_log_probs: int = config.model_config.max_logprobs
        self._kv_cache_blocks: int = config.cache_config.num_gpu_blocks or 0
        self._statistics = Statistics(kv_cache_blocks=self._kv_cache_blocks)
        # The client's socket and encoder are not thread-safe.
        self._lock = threading.Lock()
        self._sequences: dict[str, SequenceOutputs] = {}  # by the core's id
        # Last outputs that the core does not give: of requests that are cancelled, or never reach it.
        self._ended: queue.SimpleQueue[tuple[str, Output]] = queue.SimpleQueue()
        self._preparing = Preparing(grammars, self._adapters_held, self._add, self._end)
        self._ending = threading.Event()
        self.lacks = lacking(config, has_adapters=self._adapters_held is not None)
        self._warm_up(failures)

    def submit(self, request: Request) -> None:
        """Raises InvalidArgument for values that vLLM does not accept.

        StructuredOutputInvalid, for a structure that it cannot follow, is in the request's last output:
        trying one takes time.
        """
        from .requests import core_request
        from .sequences import SequenceOutputs

        structure = request.structured_output
        if structure is not None:
            # The only token with which the grammar lets a text end.
            request = replace(request, end_ids=request.end_ids | {self._grammar_end})
        asked = core_request(request, self.limits, self._most_log_probs)
        with self._lock:
            self._sequences[asked.request_id] = SequenceOutputs(request)
        if structure is None and request.lora is None:
            self._add(asked)
        else:
            self._preparing.submit(request, asked)

    def _add(self, asked: Any) -> bool:
        """Give it to the core; False: it was cancelled first, or ends with a core that has died."""
        with self._lock:
            if asked.request_id not in self._sequences:
                return False
            try:
                self._client.add_request(asked)
            except BaseException:
                if self._client.resources.engine_dead:
                    return False
                del self._sequences[asked.request_id]
                raise
        return True

    def cancel(self, request_id: int) -> None:
        """Its last output is made here: the core gives none for a request that is aborted."""
        core_id = str(request_id)
        if core_id in self._sequences:
            self._end(core_id, Output(request_id, finish_reason=FinishReason.CANCELLED))

    def _end(self, core_id: str, last: Output) -> None:
        if last.error is not None and self._client.resources.engine_dead:
            return  # nothing is wrong with what it asked for: it ends with the process, as all others do
        self._ended.put((core_id, last))
        self._client.outputs_queue.put_nowait(None)  # so that `steps` looks

    def steps(self) -> Iterator[Sequence[Output]]:
        """Raises `CoreDied`, and HostLost when one of its other hosts is lost; the engine is then useless."""
        last_step = last_look = time.monotonic()
        while not self._ending.is_set():
            try:
                step = self._client.outputs_queue.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                step = None
            if isinstance(step, Exception):
                raise self._death() from step
            now = time.monotonic()
            # Not only when the queue stays empty: whoever leaves or is refused fills it, too.
            if step is None and now - last_look >= _LOOK_SECONDS:
                if not self._sequences.keys() - self._preparing.waiting:
                    last_step = now  # there is nothing to do
                self._look_for_death(last_step)
                last_look = now
            outputs = self._take_ended()
            if step is not None:
                last_step = now
                outputs += self._take(step)
            if outputs:
                yield outputs
        self._preparing.close()
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
                # Once the core knows: from here on, another adapter may take the place of this one.
                if self._adapters_held is not None:
                    self._adapters_held.left(core_output.request_id)
        return outputs

    def _take_ended(self) -> list[Output]:
        outputs = []
        while not self._ended.empty():
            core_id, last = self._ended.get()
            if self._sequences.pop(core_id, None) is not None:
                self._preparing.forget(core_id)
                self._abort(core_id)
                outputs.append(last)
                if self._adapters_held is not None:
                    self._adapters_held.left(core_id)
        return outputs

    def _call(self, method: str, argument: Any) -> Any:
        """Call a method of the core, which runs between two steps. Raises what it raises, as text."""
        from vllm.v1.engine import EngineCoreRequestType

        client, number, answer = self._client, next(_CALLS), Future[Any]()
        client.utility_results[number] = answer
        with self._lock:  # and not while it waits, as `call_utility` would
            # What the public `call_utility` does before it waits.
            client._send_input(EngineCoreRequestType.UTILITY, (0, number, method, (argument,)))  # noqa: SLF001
        return answer.result(_CALL_SECONDS)

    def _abort(self, core_id: str) -> None:
        with self._lock:
            self._client.abort_requests([core_id])

    def _look_for_death(self, last_step: float) -> None:
        """Notice a core that was killed: it leaves its client waiting for ever."""
        if self._client.resources.engine_dead:
            raise self._death()
        if self._is_stopped():
            raise CoreDied("it was stopped by a signal")
        if time.monotonic() - last_step > _SILENT_SECONDS:
            raise CoreDied(f"it completed no step for {_SILENT_SECONDS:g} s")

    def _death(self) -> Exception:
        return CoreDied() if self._nodes is None else self._nodes.failure or CoreDied()

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
        if self._preparing.grammars is None:
            self.lacks |= {_STRUCTURED}
        if _STRUCTURED not in self.lacks:
            self.submit(structured_warm_up(self.limits))
        deadline = time.monotonic() + _WARM_UP_SECONDS
        while self._sequences:
            try:
                step = self._client.outputs_queue.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                step = None
            if isinstance(step, Exception) or self._client.resources.engine_dead:
                if self._nodes is not None and self._nodes.failure is not None:
                    raise self._nodes.failure
                raise coded([_logged(failures), "the engine core died at its first requests"])
            if time.monotonic() > deadline:
                raise VllmUnknownError(reason=f"its first requests took more than {_WARM_UP_SECONDS:g} s")
            outputs = self._take_ended()
            if step is not None:
                outputs += self._take(step)
            for output in outputs:
                if output.error is not None and output.request_id == STRUCTURED:
                    sys.stderr.write(f"no structured output with this tokenizer: {output.error}\n")
                    self.lacks |= {_STRUCTURED}
                elif output.error is not None:
                    raise output.error


def _load(arguments: dict[str, Any], failures: Path, nodes: Nodes | None) -> tuple[Any, Any]:
    """The client of a core that is ready, and the configuration with the values that the core settled on."""
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.core_client import EngineCoreClient
        from vllm.v1.executor.abstract import Executor

        from .executors import mortal
    except (ImportError, OSError, RuntimeError) as problem:
        raise not_loaded(problem) from problem
    if nodes is not None:
        arguments = arguments | nodes.place.arguments
    try:
        # The defaults of batch sizes are those of a server.
        config = EngineArgs(**known_to(EngineArgs, arguments)).create_engine_config(
            UsageContext.OPENAI_API_SERVER
        )
        executor = mortal(Executor.get_class(config))
    except CogTritonError:
        raise
    except Exception as problem:
        error = coded([f"{type(problem).__name__}: {problem}"])
        if isinstance(error, VllmUnknownError):
            traceback.print_exc()  # nobody has logged it yet
        raise error from problem
    try:
        client = EngineCoreClient.make_client(
            multiprocess_mode=True,
            asyncio_mode=False,
            vllm_config=config,
            executor_class=executor,
            log_stats=True,
        )
    except Exception as problem:
        if nodes is not None and nodes.failure is not None:
            raise nodes.failure from problem
        # The cause is only in what the core has logged.
        raise coded([_logged(failures), f"{type(problem).__name__}: {problem}"]) from problem
    return client, config


def _logged(failures: Path) -> str:
    return failures.read_text(errors="replace") if failures.exists() else ""
