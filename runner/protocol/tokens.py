"""The tensors of the model `tensorrt_llm`: one table for the client, the repository and the engine.

Names, datatypes and dims are those of TensorRT-LLM's Triton model (inflight_batcher_llm/tensorrt_llm,
config.pbtxt), text models only; where we differ, the table says so. Standard library only: engine processes
import it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from runner.protocol.engine import MAX_LOG_PROBS, STRUCTURES, Request, StructuredOutput
from runner.protocol.tensors import (
    ANY,
    ONE,
    InputTable,
    Range,
    RawTensor,
    TensorSpec,
    flatten_words,
    raw_tensor,
    split_words,
    text_tensor,
)
from shared.errors import MalformedRequest, TensorNotSupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from runner.protocol.frames import RequestFrame

_MAX_SHOWN = 40
_NOT_FOLLOWED = "structural_tag"  # which TensorRT-LLM's contract has

SAMPLING = {
    TensorSpec("runtime_top_k", "INT32", ONE): ("top_k", Range(-1, math.inf, -1)),
    TensorSpec("runtime_top_p", "FP32", ONE): ("top_p", Range(-math.inf, 1, 0)),
    TensorSpec("temperature", "FP32", ONE): ("temperature", Range(0, math.inf)),
    TensorSpec("min_tokens", "INT32", ONE): ("min_tokens", Range(-1, math.inf, -1)),
    TensorSpec("seed", "UINT64", ONE): ("seed", Range(0, math.inf)),
    TensorSpec("len_penalty", "FP32", ONE): ("length_penalty", Range(0, math.inf)),
    TensorSpec("repetition_penalty", "FP32", ONE): ("repetition_penalty", Range(math.ulp(0), math.inf)),
    TensorSpec("presence_penalty", "FP32", ONE): ("presence_penalty", Range(-math.inf, math.inf)),
    TensorSpec("frequency_penalty", "FP32", ONE): ("frequency_penalty", Range(-math.inf, math.inf)),
    TensorSpec("min_p", "FP32", ONE): ("min_p", Range(0, 1)),  # not in TensorRT-LLM's contract
}

_STRUCTURE_KIND, _STRUCTURE = "guided_decoding_guide_type", "guided_decoding_guide"

_SUPPORTED = (
    TensorSpec("input_ids", "INT32", ANY, optional=False),
    TensorSpec("input_lengths", "INT32", ONE, optional=False),
    TensorSpec("request_output_len", "INT32", ONE, optional=False),
    # TensorRT-LLM has dims [1]. Ours may hold several ids, each of which ends the sequence and is not output.
    TensorSpec("end_id", "INT32", ANY),
    TensorSpec("stop_words_list", "INT32", (2, -1)),
    TensorSpec("bad_words_list", "INT32", (2, -1)),  # only some engines can: see their `honours`
    TensorSpec("streaming", "BOOL", ONE),
    # Not in TensorRT-LLM's contract, whose `embedding_bias` has a value for each token of the vocabulary.
    TensorSpec("logit_bias_ids", "INT32", ANY),
    TensorSpec("logit_bias_values", "FP32", ANY),
    # Also ours: how many alternatives to report beside each token; only over a feed.
    TensorSpec("log_probs", "INT32", ONE),
    # The kinds are `STRUCTURES`: without TensorRT-LLM's structural_tag (_NOT_FOLLOWED), and with choices.
    TensorSpec(_STRUCTURE_KIND, "BYTES", ONE),
    TensorSpec(_STRUCTURE, "BYTES", ONE),
    # Ours: an adapter by name; TensorRT-LLM has its weights here.
    TensorSpec("lora_name", "BYTES", ONE),
    TensorSpec("cache_salt", "BYTES", ONE),
    TensorSpec("priority", "INT32", ONE),
)

UNSUPPORTED: dict[TensorSpec, tuple[float, ...]] = {
    TensorSpec("beam_width", "INT32", ONE): (1,),
    TensorSpec("num_return_sequences", "INT32", ONE): (1,),
    TensorSpec("return_log_probs", "BOOL", ONE): (False,),
    TensorSpec("return_context_logits", "BOOL", ONE): (False,),
    TensorSpec("return_generation_logits", "BOOL", ONE): (False,),
    TensorSpec("return_perf_metrics", "BOOL", ONE): (False,),
    TensorSpec("return_num_input_tokens", "BOOL", ONE): (False,),
    TensorSpec("return_num_output_tokens", "BOOL", ONE): (False,),
    # The prompt is never repeated in the output; TensorRT-LLM's default differs when not streaming.
    TensorSpec("exclude_input_in_output", "BOOL", ONE): (True,),
    TensorSpec("prompt_embedding_table", "FP16", (-1, -1)): (),
    TensorSpec("prompt_vocab_size", "INT32", ONE): (0,),
    TensorSpec("lora_task_id", "UINT64", ONE): (),
    TensorSpec("lora_weights", "FP16", (-1, -1)): (),
    TensorSpec("lora_config", "INT32", (-1, 3)): (),
}
"""Of both models: inputs that ask for something unsupported, and the values that ask for nothing."""

_UNSUPPORTED: dict[TensorSpec, tuple[float, ...]] = {
    TensorSpec("embedding_bias", "FP32", ANY): (),
    TensorSpec("runtime_top_p_min", "FP32", ONE): (0,),
    TensorSpec("runtime_top_p_decay", "FP32", ONE): (0, 1),
    TensorSpec("runtime_top_p_reset_ids", "INT32", ONE): (-1, 0, 1),
    TensorSpec("beam_search_diversity_rate", "FP32", ONE): (0,),
    # Cancelling the gRPC call, or closing the HTTP connection, stops a request.
    TensorSpec("stop", "BOOL", ONE): (False,),
    TensorSpec("draft_input_ids", "INT32", ANY): (),
    TensorSpec("draft_acceptance_threshold", "FP32", ONE): (),
    TensorSpec("retention_token_range_starts", "INT32", ANY): (),
    TensorSpec("retention_token_range_ends", "INT32", ANY): (),
    TensorSpec("retention_token_range_priorities", "INT32", ANY): (),
    TensorSpec("retention_token_range_durations_ms", "INT32", ANY): (),
    TensorSpec("retention_decode_priority", "INT32", ONE): (),
    TensorSpec("retention_decode_duration_ms", "INT32", ONE): (),
    TensorSpec("lookahead_window_size", "INT32", ONE): (),
    TensorSpec("lookahead_ngram_size", "INT32", ONE): (),
    TensorSpec("lookahead_verification_set_size", "INT32", ONE): (),
}

# They change nothing: without beams, there is nothing to pad, and no search to stop early.
_WITHOUT_EFFECT = (
    TensorSpec("pad_id", "INT32", ONE),
    TensorSpec("early_stopping", "BOOL", ONE),
)

OUTPUTS = (
    TensorSpec("output_ids", "INT32", (-1, -1)),
    TensorSpec("sequence_length", "INT32", ANY),
    TensorSpec("finish_reason", "INT32", ONE),  # not in TensorRT-LLM's contract
)

_TABLE = InputTable(_SUPPORTED, SAMPLING, UNSUPPORTED | _UNSUPPORTED, _WITHOUT_EFFECT)
INPUTS = _TABLE.inputs
_SPECS = {spec.name: spec for spec in INPUTS}


def request_tensors(request: Request) -> list[RawTensor]:
    """The inputs that say what `request` says, with the leading batch dimension of 1.

    Raises InvalidArgument for a number that a tensor cannot hold.
    """
    values: list[tuple[str, Sequence[float]]] = [
        ("input_ids", request.input_token_ids),
        ("input_lengths", (len(request.input_token_ids),)),
        ("request_output_len", (request.max_tokens,)),
        ("streaming", (request.streaming,)),
    ]
    if request.end_ids:
        values.append(("end_id", sorted(request.end_ids)))
    if request.stop_words:
        values.append(("stop_words_list", flatten_words(request.stop_words)))
    if request.bad_words:
        values.append(("bad_words_list", flatten_words(request.bad_words)))
    if request.logit_bias:
        values.append(("logit_bias_ids", list(request.logit_bias)))
        values.append(("logit_bias_values", list(request.logit_bias.values())))
    if request.log_probs is not None:
        values.append(("log_probs", (request.log_probs,)))
    if request.priority is not None:
        values.append(("priority", (request.priority,)))
    for spec, (field, _) in SAMPLING.items():
        value = getattr(request.sampling, field)
        if value is not None:
            values.append((spec.name, (value,)))
    tensors = [raw_tensor(_SPECS[name], numbers) for name, numbers in values]
    if request.structured_output is not None:
        tensors.append(text_tensor(_SPECS[_STRUCTURE_KIND], request.structured_output.kind))
        tensors.append(text_tensor(_SPECS[_STRUCTURE], request.structured_output.text))
    if request.lora is not None:
        tensors.append(text_tensor(_SPECS["lora_name"], request.lora))
    if request.cache_salt is not None:
        tensors.append(text_tensor(_SPECS["cache_salt"], request.cache_salt))
    return tensors


def decode_request(frame: RequestFrame) -> Request:
    """What the inputs of an inference request ask for.

    Raises MalformedRequest for inputs that violate the contract, TensorNotSupported for ones that ask for
    something unsupported.
    """
    given = _TABLE.read(frame)
    input_ids = given["input_ids"]
    (length,) = given["input_lengths"]
    (max_tokens,) = given["request_output_len"]
    if not 1 <= length <= len(input_ids):
        raise MalformedRequest(reason=f"input_lengths is {length}, but input_ids has {len(input_ids)} ids")
    if max_tokens < 1:
        raise MalformedRequest(reason=f"request_output_len is {max_tokens}, but must be at least 1")
    if min(input_ids) < 0:
        raise MalformedRequest(reason="input_ids has a negative id")
    biased, biases = given.get("logit_bias_ids", ()), given.get("logit_bias_values", ())
    if len(biased) != len(biases):
        reason = f"there are {len(biased)} logit_bias_ids and {len(biases)} logit_bias_values"
        raise MalformedRequest(reason=reason)
    (log_probs,) = given.get("log_probs", (None,))
    if log_probs is not None and not 0 <= log_probs <= MAX_LOG_PROBS:
        reason = f"log_probs is {log_probs}, but must be at least 0 and at most {MAX_LOG_PROBS}"
        raise MalformedRequest(reason=reason)
    (priority,) = given.get("priority", (None,))
    if priority is not None and priority < 0:
        raise MalformedRequest(reason=f"priority is {priority}, but must be at least 0")
    return Request(
        request_id=frame.request_id,
        input_token_ids=list(input_ids[:length]),
        max_tokens=max_tokens,
        end_ids=frozenset(token for token in given.get("end_id", ()) if token >= 0),
        stop_words=split_words("stop_words_list", given.get("stop_words_list", ())),
        bad_words=split_words("bad_words_list", given.get("bad_words_list", ())),
        sampling=_TABLE.read_sampling(given),
        streaming=given.get("streaming") == (True,),
        logit_bias=dict(zip(biased, biases, strict=True)),
        log_probs=log_probs,
        structured_output=_structured_output(given),
        lora=given.get("lora_name", (None,))[0] or None,
        cache_salt=given.get("cache_salt", (None,))[0] or None,
        priority=priority,
    )


def _structured_output(given: Mapping[str, tuple[Any, ...]]) -> StructuredOutput | None:
    (kind,), (text,) = given.get(_STRUCTURE_KIND) or ("",), given.get(_STRUCTURE) or ("",)
    if not kind and not text:
        return None
    if not kind or not text:
        raise MalformedRequest(reason=f"one of {_STRUCTURE_KIND} and {_STRUCTURE} is missing")
    if kind == _NOT_FOLLOWED:
        raise TensorNotSupported(tensor=f"{_STRUCTURE_KIND} {kind!r}")
    if kind not in STRUCTURES:
        reason = f"{_STRUCTURE_KIND} is {kind[:_MAX_SHOWN]!r}, but must be one of {', '.join(STRUCTURES)}"
        raise MalformedRequest(reason=reason)
    return StructuredOutput(kind, text)
