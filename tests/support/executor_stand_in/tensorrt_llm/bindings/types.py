"""The classes of `tensorrt_llm.bindings.executor` that carry values.

Names, order, defaults and checks are those of the fact sheet on the executor; each class names its section.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tests.support.tensorrt_llm.faults import seeded


def check(condition: bool, info: str) -> None:
    """ "Errors": any C++ check is a RuntimeError with a prefix, the place in the source and a backtrace."""
    if not condition:
        raise failure(f"[TensorRT-LLM][ERROR] Assertion failed: {info}")


def failure(message: str) -> RuntimeError:
    place = "/home/jenkins/agent/workspace/LLM/main/cpp/tensorrt_llm/executor/executorImpl.cpp:412"
    return RuntimeError(f"{message} ({place})\n1       0x7f2a4c9d3e1b /usr/lib/libtensorrt_llm.so(+0x51e1b)")


# "Enums"
class ModelType(Enum):
    DECODER_ONLY = 0
    ENCODER_ONLY = 1
    ENCODER_DECODER = 2


class BatchingType(Enum):
    STATIC = 0
    INFLIGHT = 1


class CapacitySchedulerPolicy(Enum):
    MAX_UTILIZATION = 0
    GUARANTEED_NO_EVICT = 1
    STATIC_BATCH = 2


class FinishReason(Enum):
    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5


@dataclass(slots=True)
class SamplingConfig:
    """ "SamplingConfig": beam_width positional, the rest keyword only, checked at construction."""

    beam_width: int = 1
    top_k: int | None = field(default=None, kw_only=True)
    top_p: float | None = field(default=None, kw_only=True)
    top_p_min: float | None = field(default=None, kw_only=True)
    top_p_reset_ids: int | None = field(default=None, kw_only=True)
    top_p_decay: float | None = field(default=None, kw_only=True)
    seed: int | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    min_tokens: int | None = field(default=None, kw_only=True)
    beam_search_diversity_rate: float | None = field(default=None, kw_only=True)
    repetition_penalty: float | None = field(default=None, kw_only=True)
    presence_penalty: float | None = field(default=None, kw_only=True)
    frequency_penalty: float | None = field(default=None, kw_only=True)
    prompt_ignore_length: int | None = field(default=None, kw_only=True)
    length_penalty: float | None = field(default=None, kw_only=True)
    early_stopping: int | None = field(default=None, kw_only=True)
    no_repeat_ngram_size: int | None = field(default=None, kw_only=True)
    num_return_sequences: int | None = field(default=None, kw_only=True)
    min_p: float | None = field(default=None, kw_only=True)
    beam_width_array: list[int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check(self.beam_width > 0, "beamWidth > 0")
        check(self.top_k is None or self.top_k >= 0, "topK.value() >= 0")
        check(self.top_p is None or self.top_p > 0, "topP.value() > 0.f")
        check(self.top_p is None or self.top_p <= 1, "topP.value() <= 1.f")
        check(self.temperature is None or self.temperature >= 0, "temperature.value() >= 0.f")
        check(self.min_tokens is None or self.min_tokens >= 0, "minTokens.value() >= 0")
        check(
            self.repetition_penalty is None or self.repetition_penalty > 0,
            "repetitionpenalty.value() > 0.f",
        )
        check(self.length_penalty is None or self.length_penalty >= 0, "lengthPenalty.value() >= 0.f")


@dataclass(slots=True)
class OutputConfig:
    """ "OutputConfig": everything off unless asked for."""

    return_log_probs: bool = False
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = False
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: list | None = None


@dataclass(slots=True)
class Request:
    """ "Request": two positional arguments, all others keyword only; checked at construction."""

    input_token_ids: list[int]
    max_tokens: int
    streaming: bool = field(default=False, kw_only=True)
    sampling_config: SamplingConfig = field(default_factory=SamplingConfig, kw_only=True)
    output_config: OutputConfig = field(default_factory=OutputConfig, kw_only=True)
    end_id: int | None = field(default=None, kw_only=True)
    pad_id: int | None = field(default=None, kw_only=True)
    bad_words: list[list[int]] | None = field(default=None, kw_only=True)
    stop_words: list[list[int]] | None = field(default=None, kw_only=True)
    client_id: int | None = field(default=None, kw_only=True)
    priority: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.input_token_ids, list) or not isinstance(self.max_tokens, int):
            raise TypeError("__init__(): incompatible function arguments.")
        check(len(self.input_token_ids) > 0, "!mInputTokenIds.empty()")
        check(self.max_tokens > 0, "mMaxNewTokens > 0")


@dataclass(slots=True)
class Result:
    """ "Response and Result": without beams there is one list of tokens and one finish reason."""

    is_final: bool = False
    is_sequence_final: bool = False
    output_token_ids: list[list[int]] = field(default_factory=lambda: [[]])
    finish_reasons: list[FinishReason] = field(default_factory=lambda: [FinishReason.NOT_FINISHED])
    sequence_index: int = 0


class Response:
    """ "Response and Result": has_error is a method; the wrong one of error_msg and result raises."""

    def __init__(self, request_id: int, answer: str | Result, client_id: int | None = None) -> None:
        self.request_id = request_id
        self.client_id = client_id
        self._answer = answer

    def has_error(self) -> bool:
        return isinstance(self._answer, str)

    @property
    def error_msg(self) -> str:
        check(self.has_error(), "hasError()")
        assert isinstance(self._answer, str)
        return self._answer

    @property
    def result(self) -> Result:
        check(not self.has_error(), "!hasError()")
        assert not isinstance(self._answer, str)
        return self._answer


# "ExecutorConfig" and the classes under it. SchedulerConfig is read-only after construction.
@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT
    context_chunking_policy: object = None
    dynamic_batch_config: object = None


@dataclass(slots=True)
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: list[int] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: float | None = None
    host_cache_size: int | None = None
    onboard_blocks: bool = True
    cross_kv_cache_fraction: float | None = None

    def __post_init__(self) -> None:
        no_sinks = self.sink_token_length is None or self.sink_token_length > 0
        check(no_sinks or seeded("attention sinks"), "sinkTokenLength.value() > 0")
        fraction = self.free_gpu_memory_fraction
        check(fraction is None or 0 < fraction < 1, "freeGpuMemoryFraction.value() > 0.f && < 1.f")


@dataclass(slots=True)
class ParallelConfig:
    communication_type: object = None
    communication_mode: object = None
    device_ids: list[int] | None = None
    participant_ids: list[int] | None = None
    orchestrator_config: object = None
    num_nodes: int | None = None


class DecodingMode:
    def __init__(self, name: str) -> None:
        self.name = name

    Auto = classmethod(lambda cls: cls("Auto"))
    TopK = classmethod(lambda cls: cls("TopK"))
    TopP = classmethod(lambda cls: cls("TopP"))
    TopKTopP = classmethod(lambda cls: cls("TopKTopP"))


@dataclass(slots=True)
class DecodingConfig:
    decoding_mode: DecodingMode | None = None
    lookahead_decoding_config: object = None
    medusa_choices: object = None
    eagle_config: object = None


class ExtendedRuntimePerfKnobConfig:
    """The constructor takes the first two only; the others are attributes."""

    def __init__(self, multi_block_mode: bool = True, enable_context_fmha_fp32_acc: bool = False) -> None:
        self.multi_block_mode = multi_block_mode
        self.enable_context_fmha_fp32_acc = enable_context_fmha_fp32_acc
        self.cuda_graph_mode = False
        self.cuda_graph_cache_size = 0


@dataclass(slots=True)
class ExecutorConfig:
    max_beam_width: int = 1
    scheduler_config: SchedulerConfig = field(default_factory=SchedulerConfig)
    kv_cache_config: KvCacheConfig = field(default_factory=KvCacheConfig)
    enable_chunked_context: bool = False
    normalize_log_probs: bool = True
    iter_stats_max_iterations: int = 1000
    request_stats_max_iterations: int = 0
    batching_type: BatchingType = BatchingType.INFLIGHT
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    parallel_config: ParallelConfig | None = None
    peft_cache_config: object = None
    logits_post_processor_config: object = None
    decoding_config: DecodingConfig | None = None
    use_gpu_direct_storage: bool = False
    gpu_weights_percent: float = 1.0
    max_queue_size: int | None = None
    extended_runtime_perf_knob_config: ExtendedRuntimePerfKnobConfig = field(
        default_factory=ExtendedRuntimePerfKnobConfig
    )
    enable_trt_overlap: bool = False
    fail_fast_on_attention_window_too_large: bool = False

    def __post_init__(self) -> None:
        if self.fail_fast_on_attention_window_too_large and seeded("no fail fast"):
            raise TypeError("__init__(): incompatible function arguments.")


# "Iteration stats": attributes are snake_case.
@dataclass(slots=True)
class KvCacheStats:
    max_num_blocks: int
    free_num_blocks: int
    used_num_blocks: int


@dataclass(slots=True)
class IterationStats:
    iter: int
    num_active_requests: int
    num_queued_requests: int
    kv_cache_stats: KvCacheStats | None
