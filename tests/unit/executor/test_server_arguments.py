"""`server.tensorrt_llm` of configs: what has an effect, and what is accepted and ignored."""

from __future__ import annotations

from typing import ClassVar

import pytest

from runner.engines.tensorrt_llm.config import executor_config
from runner.protocol.engine import Request
from shared.errors import ServerParameterInvalid
from shared.server_arguments import EFFECTIVE, IGNORED, is_decoupled, parse_parameters

# Of the config.pbtxt of TensorRT-LLM's own model repository: parameters, and placeholders for them.
KNOWN = """
    triton_backend triton_max_batch_size decoupled_mode max_queue_delay_microseconds max_queue_size
    encoder_input_features_data_type logits_datatype prompt_embedding_table_data_type
    max_beam_width FORCE_CPU_ONLY_INPUT_TENSORS gpt_model_type batching_strategy gpt_model_path engine_dir
    encoder_model_path encoder_engine_dir max_tokens_in_paged_kv_cache max_attention_window_size
    sink_token_length batch_scheduler_policy kv_cache_free_gpu_mem_fraction cross_kv_cache_fraction
    kv_cache_host_memory_bytes kv_cache_onboard_blocks enable_trt_overlap exclude_input_in_output
    cancellation_check_period_ms stats_check_period_ms recv_poll_period_ms iter_stats_max_iterations
    request_stats_max_iterations enable_kv_cache_reuse normalize_log_probs enable_chunked_context
    gpu_device_ids participant_ids num_nodes lora_cache_optimal_adapter_size lora_cache_max_adapter_size
    lora_cache_gpu_memory_fraction lora_cache_host_memory_bytes lora_prefetch_dir decoding_mode
    executor_worker_path lookahead_window_size lookahead_ngram_size lookahead_verification_set_size
    medusa_choices eagle_choices gpu_weights_percent enable_context_fmha_fp32_acc multi_block_mode
    cuda_graph_mode cuda_graph_cache_size speculative_decoding_fast_logits tokenizer_dir
    guided_decoding_backend xgrammar_tokenizer_info_path
"""


def test_every_parameter_of_tensorrt_llm_is_in_one_table():
    assert sorted([*EFFECTIVE, *IGNORED]) == sorted(KNOWN.split())


def made(executor, **arguments):
    return executor_config(executor, parse_parameters(arguments))


def test_without_parameters_the_executor_decides(executor):
    config = made(executor)
    assert config.scheduler_config == executor.SchedulerConfig()
    assert config.kv_cache_config == executor.KvCacheConfig()
    assert config.batching_type is executor.BatchingType.INFLIGHT
    assert config.fail_fast_on_attention_window_too_large


CASES = [
    ("batch_scheduler_policy", "max_utilization", "scheduler_config.capacity_scheduler_policy.name", "MAX_UTILIZATION"),
    ("batching_strategy", "V1", "batching_type.name", "INFLIGHT"),
    ("gpt_model_type", "inflight_fused_batching", "batching_type.name", "INFLIGHT"),
    ("kv_cache_free_gpu_mem_fraction", "0.5", "kv_cache_config.free_gpu_memory_fraction", 0.5),
    ("max_tokens_in_paged_kv_cache", 2560, "kv_cache_config.max_tokens", 2560),
    ("max_attention_window_size", "4096,1024", "kv_cache_config.max_attention_window", [4096, 1024]),
    ("sink_token_length", "0", "kv_cache_config.sink_token_length", None),
    ("kv_cache_host_memory_bytes", 10**9, "kv_cache_config.host_cache_size", 10**9),
    ("kv_cache_onboard_blocks", "False", "kv_cache_config.onboard_blocks", False),
    ("enable_kv_cache_reuse", False, "kv_cache_config.enable_block_reuse", False),
    ("enable_chunked_context", True, "enable_chunked_context", True),
    ("max_queue_size", "0", "max_queue_size", 0),
    ("enable_trt_overlap", "true", "enable_trt_overlap", True),
    ("gpu_weights_percent", 0.25, "gpu_weights_percent", 0.25),
    ("gpu_device_ids", "0,1", "parallel_config.device_ids", [0, 1]),
    ("decoding_mode", "top_k_top_p", "decoding_config.decoding_mode.name", "TopKTopP"),
    ("multi_block_mode", "false", "extended_runtime_perf_knob_config.multi_block_mode", False),
    ("enable_context_fmha_fp32_acc", "true", "extended_runtime_perf_knob_config.enable_context_fmha_fp32_acc", True),
    ("cuda_graph_mode", "true", "extended_runtime_perf_knob_config.cuda_graph_mode", True),
    ("cuda_graph_cache_size", "8", "extended_runtime_perf_knob_config.cuda_graph_cache_size", 8),
]  # fmt: skip


def test_every_effective_parameter_has_a_case():
    assert sorted(["decoupled_mode", *(case[0] for case in CASES)]) == sorted(EFFECTIVE)


@pytest.mark.parametrize(
    ("arguments", "decoupled"),
    [({}, True), ({"decoupled_mode": "${decoupled_mode}"}, True), ({"decoupled_mode": "True"}, True),
     ({"decoupled_mode": False}, False), ({"decoupled_mode": "False", "max_queue_size": "x"}, False)],
)  # fmt: skip
def test_decoupled_mode_is_for_triton(arguments, decoupled):
    assert is_decoupled(arguments) is decoupled


def test_a_decoupled_mode_that_is_none_is_refused():
    with pytest.raises(ServerParameterInvalid, match="it must be true or false"):
        is_decoupled({"decoupled_mode": "maybe"})


@pytest.mark.parametrize(("name", "argument", "path", "value"), CASES)
def test_an_effective_parameter_arrives(executor, name, argument, path, value):
    found = made(executor, **{name: argument})
    for attribute in path.split("."):
        found = getattr(found, attribute)
    assert found == value


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_an_ignored_parameter_changes_nothing(name):
    assert parse_parameters({name: "whatever"}) == {}


@pytest.mark.parametrize("argument", [None, "", "  ", "${kv_cache_free_gpu_mem_fraction}"])
def test_what_is_not_filled_is_not_set(argument):
    assert parse_parameters({"kv_cache_free_gpu_mem_fraction": argument}) == {}


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("kv_cache_free_gpu_mem_fraction", "1.5"),
        ("kv_cache_free_gpu_mem_fraction", "nan"),
        ("kv_cache_free_gpu_mem_fraction", "0"),
        ("kv_cache_free_gpu_mem_fraction", "1.0"),
        ("sink_token_length", "4"),
        ("sink_token_length", "x"),
        ("batch_scheduler_policy", "best"),
        ("batching_strategy", "inflight_fuzed_batching"),
        ("gpt_model_type", "V2"),
        ("decoding_mode", "medusa"),
        ("max_tokens_in_paged_kv_cache", "0"),
        ("max_attention_window_size", "1,x"),
        ("gpu_device_ids", "0,0"),
        ("enable_chunked_context", "maybe"),
    ],
)
def test_a_value_out_of_range_is_refused(name, argument):
    with pytest.raises(
        ServerParameterInvalid, match=f"{name} of server.tensorrt_llm is '{argument}', but it must"
    ):
        parse_parameters({name: argument})


class TestMaxUtilization:
    POLICY: ClassVar = {"batch_scheduler_policy": "max_utilization"}

    def test_what_is_streamed_may_be_as_long_as_the_engine_takes(self, running):
        """Without chunked context the executor would refuse it: 1500 + 2400 - 1 is more than a prompt has."""
        with running(server=self.POLICY) as engine:
            assert len(engine.run(Request(1, [1] * 1500, 2400))[0]) == 2400

    def test_it_is_refused_with_chunked_context_off(self):
        with pytest.raises(ServerParameterInvalid, match="without enable_chunked_context it refuses"):
            parse_parameters(self.POLICY | {"enable_chunked_context": "false"})


def test_an_unknown_parameter_is_told_with_the_nearest(capfd):
    assert parse_parameters({"kv_cache_free_gpu_memory_fraction": 0.5}) == {}
    assert "the nearest known one is kv_cache_free_gpu_mem_fraction" in capfd.readouterr().err
