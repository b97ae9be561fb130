"""The engine itself: one `executor.Executor`, its requests and its responses.

The executor batches in flight: new requests join, ended ones leave at every step.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import FinishReason, Limits, Output, Statistics
from shared.home import SCRATCH, writable_home
from shared.server_arguments import parse_parameters

from .config import executor_config
from .end_ids import in_order
from .errors import cause_of, coded, leaves_gpu_broken, not_loaded
from .overhearing import overhearing
from .ranks import finalize_mpi, hosts_and_share
from .requests import check, executor_request, minimum_of
from .responses import Sequencer
from .settings import check_version, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from runner.protocol.engine import Request

_WAIT = timedelta(milliseconds=100)  # how soon the end of the engine is noticed when nothing happens


class TensorRTLLMEngine:
    """See `runner.protocol.engine.Engine`."""

    def __init__(self, engine_dir: Path) -> None:
        """Load the engine, on every rank at the same time. Raises EngineStartFailed, ServerParameterInvalid,
        TensorRTLLMNotLoaded and the errors of `errors.coded`.
        """
        self._settings = read_settings(engine_dir)
        values = parse_parameters(self._settings.server_arguments)
        self.limits = Limits(
            sequence=self._settings.max_seq_len,
            prompt=self._settings.max_prompt_tokens(
                chunked_context=values.get("enable_chunked_context", False)
            ),
            vocabulary=self._settings.vocab_size,
        )
        check_version(self._settings)
        os.environ["HOME"] = writable_home(os.environ.get(SCRATCH))
        try:
            self._api = import_module("tensorrt_llm.bindings.executor")
        except (ImportError, RuntimeError, OSError) as error:
            raise not_loaded(error) from error
        try:
            with overhearing() as overheard:
                self._executor: Any = self._api.Executor(
                    str(self._settings.model_path),
                    self._api.ModelType.DECODER_ONLY,
                    executor_config(self._api, values, *hosts_and_share()),
                )
        except RuntimeError as error:
            raise cause_of(str(error), overheard.text) from error
        self._lock = threading.Lock()  # a response can arrive before its id has been noted
        self._sequencers: dict[int, Sequencer] = {}  # by the executor's id
        self._executor_ids: dict[int, int] = {}  # by ours
        self._ending = threading.Event()
        self._statistics = Statistics()

    def submit(self, request: Request) -> None:
        """Raises InvalidArgument, ExecutorQueueFull and TensorRTLLMError."""
        check(request)
        end_ids = in_order(request.end_ids, self._settings.vocab_size, self._settings.eos_id)
        with self._lock:
            try:
                executor_id = self._executor.enqueue_request(executor_request(self._api, request, end_ids))
            except RuntimeError as error:
                raise coded(str(error)) from error
            self._sequencers[executor_id] = Sequencer(
                request.request_id, frozenset(end_ids[1:]), minimum_of(request)
            )
            self._executor_ids[request.request_id] = executor_id

    def cancel(self, request_id: int) -> None:
        with self._lock:
            if (executor_id := self._executor_ids.get(request_id)) is not None:
                self._executor.cancel_request(executor_id)

    def steps(self) -> Iterator[Sequence[Output]]:
        """Raises RuntimeError after the step in which the GPU failed for good."""
        while not self._ending.is_set():
            responses = self._executor.await_responses(_WAIT)
            if not responses:
                continue
            broken = None
            with self._lock:
                outputs = [output for response in responses if (output := self._output(response))]
                for response in responses:
                    if response.has_error() and leaves_gpu_broken(response.error_msg):
                        broken = response.error_msg
            if outputs:
                yield outputs
            if broken:
                raise RuntimeError(broken)
        self._executor.shutdown()
        finalize_mpi()

    def shutdown(self) -> None:
        # On shutdown the executor finishes what it has: without this, it could take long.
        for request_id in list(self._executor_ids):
            self.cancel(request_id)
        self._ending.set()

    def follow(self) -> None:
        """The work of a rank other than the first: its part of every step, until the first one ends."""
        self._executor.shutdown()
        finalize_mpi()

    def statistics(self) -> Statistics:
        """Statistics of the latest iteration; the executor reports none while it has nothing to do."""
        try:
            iterations = self._executor.get_latest_iteration_stats()
        except RuntimeError:
            iterations = []  # it has been shut down
        for iteration in iterations:
            cache = iteration.kv_cache_stats
            self._statistics = Statistics(
                active_requests=iteration.num_active_requests,
                queued_requests=iteration.num_queued_requests,
                kv_cache_blocks=cache.max_num_blocks if cache else 0,
                kv_cache_blocks_used=cache.used_num_blocks if cache else 0,
            )
        return self._statistics

    def _output(self, response: Any) -> Output | None:
        sequencer = self._sequencers.get(response.request_id)
        if sequencer is None:
            return None
        output = sequencer.output(response)
        ended = response.has_error() or response.result.is_final
        ended_by_us = not ended and output and output.finish_reason is not FinishReason.NOT_FINISHED
        if ended_by_us:
            self._executor.cancel_request(response.request_id)
        if ended or ended_by_us:
            del self._sequencers[response.request_id]
            del self._executor_ids[sequencer.request_id]
        return output
