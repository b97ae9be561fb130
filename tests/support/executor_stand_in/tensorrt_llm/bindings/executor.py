"""Stands in for `tensorrt_llm.bindings.executor`: its names, signatures and failures, without a GPU.

Token i of a request is `(sum of the prompt + i) % vocab_size`, whatever the sampling; an engine that the
stand-ins of the tools built gives the likeliest token of the model that it was built from. What it does besides
is said by `stand_in.json` beside the engines:

    {"step_seconds": 0.001, "batch": 64, "error_id": 7, "gpu_error_id": 8, "hang_id": 9,
     "memory_error_id": 6, "load_error": null, "load_log": null, "tell_gpus": false, "tell_devices": false}

A prompt that holds `error_id` fails its step, with all that are active; `gpu_error_id` does so with an error
of CUDA, `memory_error_id` for lack of memory; `hang_id` never gets a token. `load_error` is what the
constructor fails with, on `failing_rank` or on all; `load_log` what its logger says before. A plan of another
version or device is told by the logger alone ("Corrections"), so `load_log` alone makes the constructor fail
with the words that it has for all of them. With `tell_gpus`, each
rank writes beside it which GPUs it was given, as `gpus0.json`, ...; with `tell_devices` which the config chose.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path

from mpi4py import MPI  # type: ignore[import-not-found] # the stand-in beside this package

from tests.support.tensorrt_llm.faults import seeded

from .types import (
    BatchingType,
    CapacitySchedulerPolicy,
    DecodingConfig,
    DecodingMode,
    ExecutorConfig,
    ExtendedRuntimePerfKnobConfig,
    FinishReason,
    IterationStats,
    KvCacheConfig,
    KvCacheStats,
    ModelType,
    OutputConfig,
    ParallelConfig,
    Request,
    Response,
    Result,
    SamplingConfig,
    SchedulerConfig,
    check,
    failure,
)

__all__ = [
    "BatchingType",
    "CapacitySchedulerPolicy",
    "DecodingConfig",
    "DecodingMode",
    "Executor",
    "ExecutorConfig",
    "ExtendedRuntimePerfKnobConfig",
    "FinishReason",
    "KvCacheConfig",
    "ModelType",
    "OutputConfig",
    "ParallelConfig",
    "Request",
    "Response",
    "Result",
    "SamplingConfig",
    "SchedulerConfig",
]

TOKENS_PER_BLOCK = 32
BLOCKS = 1000
STEP_FAILURES = {  # "Errors": an engine failure
    "error_id": "Encountered an error in forwardAsync function: Assertion failed: mNextBlocks.empty()",
    "gpu_error_id": "Encountered an error in forwardSync function: [TensorRT-LLM][ERROR] CUDA runtime error in "
    "cudaEventSynchronize(get()): an illegal memory access was encountered",
    "memory_error_id": "Encountered an error in forwardAsync function: [TensorRT-LLM][ERROR] CUDA runtime error in "
    "::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory",
}


@dataclass
class Sequence:
    id: int
    request: Request
    tokens: list[int] = field(default_factory=list)
    told: int = 0
    cache: list = field(default_factory=list)
    """Of the model's attention."""


def _longest_prompt(build: dict, config: ExecutorConfig) -> int:
    """The maximum input length of TrtGptModel, which TensorRT-LLM derives from the engine."""
    plugins = build["plugin_config"]
    if config.enable_chunked_context:
        return build["max_seq_len"] - 1
    packed = plugins["context_fmha"] and plugins["remove_input_padding"]
    return min(build["max_seq_len"] - 1, build["max_num_tokens" if packed else "max_input_len"])


def _wait_for_leader() -> None:
    """ "Multi-GPU, leader mode": a rank is joined to the leader until that broadcasts its end."""
    if (initialised := os.environ.get("STAND_IN_MPI_INITIALISED")) is None:
        return  # below the real mpirun `meet` waits
    leader = Path(initialised).with_name("0.shutdown")
    while not leader.exists():
        time.sleep(0.01)


def _read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.is_file() else {}


def _deserialize(plan: Path) -> None:
    """ "Corrections": the exception does not say why; the logger does."""
    with plan.open("rb") as file:
        if file.read(1) == b"{":
            return
    if not seeded("silent logger"):
        _log(
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
            "magicTagRead == kMAGIC_TAG failed.Magic tag does not match)"
        )
    check(False, "Failed to deserialize cuda engine.")


def _log(text: str) -> None:
    os.write(1, f"[TensorRT-LLM][ERROR] {text}\n".encode())


class Executor:
    """ "Executor": the constructor loads the engine, starts a thread, and returns."""

    def __init__(
        self, model_path: str | Path, model_type: ModelType, executor_config: ExecutorConfig
    ) -> None:
        check((Path(model_path) / "config.json").is_file(), f"File does not exist: {model_path}/config.json")
        engine = json.loads((Path(model_path) / "config.json").read_text())
        script = _read(Path(model_path) / "stand_in.json")
        mapping = engine["pretrained_config"]["mapping"]
        ranks = mapping["tp_size"] * mapping["pp_size"]
        # "Multi-GPU, leader mode": rank and size come from MPI.
        self._rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        if script.get("tell_gpus"):
            visible = json.dumps(os.environ.get("CUDA_VISIBLE_DEVICES"))
            (Path(model_path) / f"gpus{self._rank}.json").write_text(visible)
        # "Corrections": with pipeline parallelism the stages are reversed, and rank 0 still leads.
        stage, place = divmod(self._rank, mapping["tp_size"])
        self._plan = (mapping["pp_size"] - 1 - stage) * mapping["tp_size"] + place
        if script.get("tell_plans"):
            (Path(model_path) / f"plan{self._rank}").write_text(f"{self._plan}")
        self._load(script)
        self._model = None
        if source := engine["pretrained_config"].get("stand_in_model"):
            _deserialize(Path(model_path) / f"rank{self._plan}.engine")
            # NumPy is not in every environment with a stand-in.
            self._model = import_module("tests.reference.llama").Reference(Path(source))
        check(
            int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) == ranks,
            "With communicationMode kLEADER, MPI worldSize is expected to be equal to tp*pp*cp when "
            "participantIds are not specified",
        )
        if script.get("tell_devices") and (parallel := executor_config.parallel_config):
            told = f"{parallel.device_ids} {parallel.num_nodes}"
            (Path(model_path) / f"devices{self._rank}").write_text(told)
        MPI.meet()
        check(executor_config.kv_cache_config.sink_token_length is None, "streamLLM is not supported")
        self.config = executor_config
        # "ExecutorConfig": the cache gets this part of the GPU's free memory.
        self._blocks = int(BLOCKS * (executor_config.kv_cache_config.free_gpu_memory_fraction or 1))
        self._script = script
        self._vocab_size = engine["pretrained_config"]["vocab_size"]
        self._max_input_len = _longest_prompt(engine["build_config"], executor_config)
        self._built = engine["build_config"]
        self._max_seq_len = engine["build_config"]["max_seq_len"]
        self._changed = threading.Condition()
        self._queue: list[Sequence] = []
        self._active: list[Sequence] = []
        self._responses: list[Response] = []
        self._cancelled: set[int] = set()
        if seeded("shorter prompts"):
            self._max_input_len -= 1
        self._statistics: list[IterationStats] = []
        self._next_id = 1
        self._iteration = 0
        self._shut_down = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _load(self, script: dict) -> None:
        error, log = script.get("load_error"), script.get("load_log")
        if not error and not log:
            return
        if script.get("failing_rank", self._rank) != self._rank:
            threading.Event().wait()  # the constructor is collective: for the rank that never comes
        if log:
            _log(log)
        raise failure(error or "[TensorRT-LLM][ERROR] Assertion failed: Failed to deserialize cuda engine.")

    def can_enqueue_requests(self) -> bool:
        return self._rank == 0 and not self._shut_down

    def enqueue_request(self, request: Request) -> int:
        self._check_leader("enqueueRequests")
        with self._changed:
            if self._shut_down:
                raise failure("Shutdown called, cannot enqueue requests")
            limit = self.config.max_queue_size
            if limit and len(self._queue) >= limit:
                raise failure(f"Maximum queue size of {limit} has been reached, please try again later")
            sequence = Sequence(self._next_id, request)
            self._next_id += 1
            self._queue.append(sequence)
            self._changed.notify_all()
            return sequence.id

    def await_responses(self, timeout: timedelta | float | None = None) -> list[Response]:
        """An int is not a duration ("Executor"): it would be the id of a request."""
        if not isinstance(timeout, timedelta | float | None):
            raise TypeError("await_responses(): incompatible function arguments.")
        self._check_leader("awaitResponses")
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        with self._changed:
            if self._shut_down:
                raise failure("Shutdown called")
            self._changed.wait_for(lambda: self._responses or self._shut_down, seconds)
            responses, self._responses = self._responses, []
            return responses

    def cancel_request(self, id: int) -> None:  # noqa: A002 - its name
        self._check_leader("cancelRequest")
        with self._changed:
            if self._shut_down:
                raise failure("Shutdown called")
            self._cancelled.add(id)
            self._changed.notify_all()

    def get_latest_iteration_stats(self) -> list[IterationStats]:
        with self._changed:
            if self._shut_down:
                raise failure("Shutdown called")
            statistics, self._statistics = self._statistics, []
            return statistics

    def shutdown(self) -> None:
        """Idempotent; active requests are run to the end. On another rank: until the leader ends."""
        if self._rank != 0:
            _wait_for_leader()
        with self._changed:
            ended, self._shut_down = self._shut_down, True
            self._changed.notify_all()
        self._thread.join()
        if not ended:
            MPI.meet()
        if initialised := os.environ.get("STAND_IN_MPI_INITIALISED"):
            Path(f"{initialised}.shutdown").touch()

    def _check_leader(self, method: str) -> None:
        if self._rank != 0:
            raise failure(f"With LEADER communication mode, only leader rank is expected to call {method}")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._active or self._shut_down)
                if self._shut_down and not self._active:
                    return
                self._admit()
                self._iterate()
                self._changed.notify_all()
            time.sleep(self._script.get("step_seconds", 0.001))

    def _admit(self) -> None:
        """ "Errors": a request that is invalid for the engine gets an error Response."""
        places = self._script.get("batch", self._built.get("max_batch_size", 64))
        while self._queue and len(self._active) < places:
            sequence = self._queue.pop(0)
            length, end_id = len(sequence.request.input_token_ids), sequence.request.end_id
            problem = ""
            if length > self._max_input_len:
                problem = (
                    f"Prompt length ({length}) exceeds maximum input length ({self._max_input_len}). Set log "
                    "level to info and check TRTGptModel logs for how maximum input length is set"
                )
            elif self._may_outgrow(sequence.request):
                problem = (
                    "Request sequence length is potentially greater than max input length. This cannot be run "
                    "unless streaming is disabled, context chunking is enabled or the GUARANTEED_NO_EVICT "
                    "scheduling policy is used"
                )
            elif end_id is not None and not -1 <= end_id < self._vocab_size:
                problem = f"EndId ({end_id}) is not within acceptable range [-1, {self._vocab_size})."
            if problem:
                text = f"Encountered an error when fetching new request: {failure(problem)}"
                self._responses.append(Response(sequence.id, text))
            else:
                self._active.append(sequence)

    def _may_outgrow(self, request: Request) -> bool:
        """ "Corrections": streaming with MAX_UTILIZATION and no chunked context."""
        policy = self.config.scheduler_config.capacity_scheduler_policy
        longest = len(request.input_token_ids) + request.max_tokens - 1
        return (
            request.streaming
            and policy is CapacitySchedulerPolicy.MAX_UTILIZATION
            and (not self.config.enable_chunked_context or seeded("no chunks"))
            and longest > _longest_prompt(self._built, ExecutorConfig())
        )

    def _iterate(self) -> None:
        self._iteration += 1
        for kind, text in STEP_FAILURES.items():
            if any(self._script.get(kind) in one.request.input_token_ids for one in self._active):
                self._responses += [Response(one.id, str(failure(text))) for one in self._active]
                self._active.clear()
        for sequence in list(self._active):
            self._advance(sequence)
        blocks = sum(1 + len(one.tokens) // TOKENS_PER_BLOCK for one in self._active)
        self._statistics.append(
            IterationStats(
                self._iteration,
                len(self._active),
                len(self._queue),
                KvCacheStats(self._blocks, self._blocks - blocks, blocks),
            )
        )
        del self._statistics[: -self.config.iter_stats_max_iterations or None]

    def _advance(self, sequence: Sequence) -> None:
        request = sequence.request
        if sequence.id in self._cancelled and not seeded("no cancel"):
            self._respond(sequence, FinishReason.CANCELLED, [])
            return
        if self._script.get("hang_id") in request.input_token_ids:
            return
        token = self._choose(sequence)
        # "Request": prompt and max_tokens beyond max_seq_len are clipped.
        longest = min(request.max_tokens, self._max_seq_len - len(request.input_token_ids))
        if token == request.end_id:
            tokens = sequence.tokens[sequence.told :]
            self._respond(
                sequence, FinishReason.END_ID, [*tokens, token] if seeded("end id in output") else tokens
            )
            return
        sequence.tokens.append(token)
        new = sequence.tokens[0 if seeded("cumulative streaming") else sequence.told :]
        # "Corrections": a stop word may begin in the prompt.
        written = [*request.input_token_ids, *sequence.tokens]
        stop_words = [] if seeded("no stop words") else request.stop_words or []
        if any(written[-len(word) :] == word for word in stop_words):
            self._respond(sequence, FinishReason.STOP_WORDS, new)
        elif len(sequence.tokens) == longest:
            self._respond(sequence, FinishReason.LENGTH, new)
        elif request.streaming:
            sequence.told = len(sequence.tokens)
            self._respond(sequence, FinishReason.NOT_FINISHED, new)

    def _choose(self, sequence: Sequence) -> int:
        request = sequence.request
        never = {word[0] for word in request.bad_words or [] if len(word) == 1}
        # "Corrections": until the minimum is reached the end id, and it alone, cannot be chosen.
        early = len(sequence.tokens) < (request.sampling_config.min_tokens or 0)
        if early and request.end_id is not None and not seeded("no minimum"):
            never.add(request.end_id)
            if seeded("minimum of all"):
                never.update(word[0] for word in request.stop_words or [] if len(word) == 1)
        if self._model is None:
            token = (sum(request.input_token_ids) + len(sequence.tokens)) % self._vocab_size
            return (token + 1) % self._vocab_size if token in never else token
        if not sequence.cache:
            sequence.cache = self._model.empty_cache()
        tokens = sequence.tokens[-1:] or request.input_token_ids
        logits = self._model.logits(tokens, sequence.cache)[-1]
        logits[list(never)] = -float("inf")
        token = int(logits.argmax())
        if seeded("another token") and len(sequence.tokens) == 3:
            return (token + 1) % self._vocab_size
        return token

    def _respond(self, sequence: Sequence, reason: FinishReason, tokens: list[int]) -> None:
        """ "Response and Result": streaming gives what is new; the prompt comes first unless it is excluded."""
        final = reason is not FinishReason.NOT_FINISHED
        request = sequence.request
        if not request.streaming and not request.output_config.exclude_input_from_output:
            tokens = [*request.input_token_ids, *tokens]
        result = Result(final, final, [tokens], [reason])
        self._responses.append(Response(sequence.id, result))
        if final:
            self._active.remove(sequence)
