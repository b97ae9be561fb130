"""The tensors of the model `tensorrt_llm`: one table for the client, the repository and the engine.

Names, datatypes and dims are those of TensorRT-LLM's Triton model (inflight_batcher_llm/tensorrt_llm,
config.pbtxt), text models only; where we differ, the table says so. Standard library only: engine processes
import it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from runner.engines.base import Request, SamplingParameters
from shared.errors import MalformedRequest, TensorNotSupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runner.engines.frames import RequestFrame, Tensor

_FORMATS = {
    "BOOL": "?",
    "UINT8": "B",
    "INT32": "i",
    "INT64": "q",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
}

ANY = (-1,)
ONE = (1,)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: `dims` are without the batch dimension, -1 is any length."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = True


class _Range(NamedTuple):
    """The values that a sampling parameter may have, both ends included, and those that leave it unset."""

    low: float
    high: float
    unset_up_to: float = -math.inf


# Input -> the field of SamplingParameters that it sets, and the values it may have.
_SAMPLING = {
    TensorSpec("runtime_top_k", "INT32", ONE): ("top_k", _Range(-1, math.inf, -1)),
    TensorSpec("runtime_top_p", "FP32", ONE): ("top_p", _Range(-math.inf, 1, 0)),
    TensorSpec("temperature", "FP32", ONE): ("temperature", _Range(0, math.inf)),
    TensorSpec("min_tokens", "INT32", ONE): ("min_tokens", _Range(-1, math.inf, -1)),
    TensorSpec("seed", "UINT64", ONE): ("seed", _Range(0, math.inf)),
    TensorSpec("len_penalty", "FP32", ONE): ("length_penalty", _Range(0, math.inf)),
    TensorSpec("repetition_penalty", "FP32", ONE): ("repetition_penalty", _Range(math.ulp(0), math.inf)),
    TensorSpec("presence_penalty", "FP32", ONE): ("presence_penalty", _Range(-math.inf, math.inf)),
    TensorSpec("frequency_penalty", "FP32", ONE): ("frequency_penalty", _Range(-math.inf, math.inf)),
}

_SUPPORTED = (
    TensorSpec("input_ids", "INT32", ANY, optional=False),
    TensorSpec("input_lengths", "INT32", ONE, optional=False),
    TensorSpec("request_output_len", "INT32", ONE, optional=False),
    # TensorRT-LLM has dims [1]. Ours may hold several ids, each of which ends the sequence and is not output.
    TensorSpec("end_id", "INT32", ANY),
    TensorSpec("stop_words_list", "INT32", (2, -1)),
    TensorSpec("streaming", "BOOL", ONE),
    *_SAMPLING,
)

# Inputs that ask for something which is not supported -> the values that ask for nothing. An empty tensor
# never asks for anything.
_UNSUPPORTED: dict[TensorSpec, tuple[float, ...]] = {
    TensorSpec("beam_width", "INT32", ONE): (1,),
    TensorSpec("num_return_sequences", "INT32", ONE): (1,),
    TensorSpec("bad_words_list", "INT32", (2, -1)): (),
    TensorSpec("embedding_bias", "FP32", ANY): (),
    TensorSpec("runtime_top_p_min", "FP32", ONE): (0,),
    TensorSpec("runtime_top_p_decay", "FP32", ONE): (0, 1),
    TensorSpec("runtime_top_p_reset_ids", "INT32", ONE): (-1, 0, 1),
    TensorSpec("beam_search_diversity_rate", "FP32", ONE): (0,),
    TensorSpec("return_log_probs", "BOOL", ONE): (False,),
    TensorSpec("return_context_logits", "BOOL", ONE): (False,),
    TensorSpec("return_generation_logits", "BOOL", ONE): (False,),
    TensorSpec("return_perf_metrics", "BOOL", ONE): (False,),
    TensorSpec("return_num_input_tokens", "BOOL", ONE): (False,),
    TensorSpec("return_num_output_tokens", "BOOL", ONE): (False,),
    # The prompt is never repeated in the output; TensorRT-LLM's default differs when not streaming.
    TensorSpec("exclude_input_in_output", "BOOL", ONE): (True,),
    # Cancelling the gRPC call, or closing the HTTP connection, stops a request.
    TensorSpec("stop", "BOOL", ONE): (False,),
    TensorSpec("draft_input_ids", "INT32", ANY): (),
    TensorSpec("draft_acceptance_threshold", "FP32", ONE): (),
    TensorSpec("prompt_embedding_table", "FP16", (-1, -1)): (),
    TensorSpec("prompt_vocab_size", "INT32", ONE): (0,),
    TensorSpec("lora_task_id", "UINT64", ONE): (),
    TensorSpec("lora_weights", "FP16", (-1, -1)): (),
    TensorSpec("lora_config", "INT32", (-1, 3)): (),
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

# They change nothing: without beams there is nothing to pad, and no search to stop early.
_WITHOUT_EFFECT = (
    TensorSpec("pad_id", "INT32", ONE),
    TensorSpec("early_stopping", "BOOL", ONE),
)

INPUTS = (*_SUPPORTED, *_WITHOUT_EFFECT, *_UNSUPPORTED)

OUTPUTS = (
    TensorSpec("output_ids", "INT32", (-1, -1)),
    TensorSpec("sequence_length", "INT32", ANY),
    TensorSpec("finish_reason", "INT32", ONE),  # not in TensorRT-LLM's contract
)

_SPECS = {spec.name: spec for spec in INPUTS}


class RawTensor(NamedTuple):
    """One input as Triton's protocols carry it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


def request_tensors(request: Request) -> list[RawTensor]:
    """The inputs that say what `request` says, with the leading batch dimension of 1."""
    values: list[tuple[str, Sequence[float]]] = [
        ("input_ids", request.input_token_ids),
        ("input_lengths", (len(request.input_token_ids),)),
        ("request_output_len", (request.max_tokens,)),
        ("streaming", (request.streaming,)),
    ]
    if request.end_ids:
        values.append(("end_id", sorted(request.end_ids)))
    if request.stop_words:
        values.append(("stop_words_list", _flatten_words(request.stop_words)))
    for spec, (field, _) in _SAMPLING.items():
        value = getattr(request.sampling, field)
        if value is not None:
            values.append((spec.name, (value,)))
    return [_raw_tensor(_SPECS[name], numbers) for name, numbers in values]


def decode_request(frame: RequestFrame) -> Request:
    """What the inputs of an inference request ask for.

    Raises E2403 for inputs that do not keep the contract, E2404 for ones that ask for what is not supported.
    """
    given = {tensor.name: _numbers(tensor) for tensor in frame.tensors}
    for spec, neutral in _UNSUPPORTED.items():
        if any(number not in neutral for number in given.get(spec.name, ())):
            raise TensorNotSupported(tensor=spec.name)
    for spec in INPUTS:
        if not spec.optional and not given.get(spec.name):
            raise MalformedRequest(reason=f"{spec.name} is missing or empty")

    input_ids = [int(number) for number in given["input_ids"]]
    length = int(given["input_lengths"][0])
    max_tokens = int(given["request_output_len"][0])
    if not 1 <= length <= len(input_ids):
        raise MalformedRequest(reason=f"input_lengths is {length}, but input_ids has {len(input_ids)} ids")
    if max_tokens < 1:
        raise MalformedRequest(reason=f"request_output_len is {max_tokens}, but must be at least 1")
    if min(input_ids) < 0:
        raise MalformedRequest(reason="input_ids has a negative id")
    return Request(
        request_id=frame.request_id,
        input_token_ids=input_ids[:length],
        max_tokens=max_tokens,
        end_ids=frozenset(int(number) for number in given.get("end_id", ()) if number >= 0),
        stop_words=_split_words([int(number) for number in given.get("stop_words_list", ())]),
        sampling=_sampling(given),
        streaming=bool(given.get("streaming") and given["streaming"][0]),
    )


def _sampling(given: dict[str, tuple[float, ...]]) -> SamplingParameters:
    values: dict[str, float] = {}
    for spec, (field, allowed) in _SAMPLING.items():
        for number in given.get(spec.name, ()):
            if not allowed.low <= number <= allowed.high or math.isinf(number):
                reason = f"{spec.name} is {number:g}, outside {allowed.low:g} to {allowed.high:g}"
                raise MalformedRequest(reason=reason)
            if number > allowed.unset_up_to:
                values[field] = number
    return SamplingParameters(**values)  # type: ignore[arg-type] # the table's datatypes are the fields' types


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    """The elements of an input that is in the table and has its datatype and dims."""
    spec = _SPECS.get(tensor.name)
    if spec is None:
        raise MalformedRequest(reason=f"there is no input {tensor.name!r}")
    if tensor.datatype != spec.datatype:
        raise MalformedRequest(reason=f"{tensor.name} is {tensor.datatype}, not {spec.datatype}")
    batch, *dims = tensor.shape or (0,)
    fits = len(dims) == len(spec.dims) and all(
        want in (-1, got) for want, got in zip(spec.dims, dims, strict=True)
    )
    if batch != 1 or not fits:
        reason = f"{tensor.name} has the shape {list(tensor.shape)}, not {[1, *spec.dims]}"
        raise MalformedRequest(reason=reason)
    count = math.prod(dims)
    layout = struct.Struct(f"<{count}{_FORMATS[spec.datatype]}")
    if layout.size != len(tensor.data):
        raise MalformedRequest(reason=f"{tensor.name} has {len(tensor.data)} bytes, not {layout.size}")
    return layout.unpack(tensor.data)


def _raw_tensor(spec: TensorSpec, numbers: Sequence[float]) -> RawTensor:
    if spec.dims == (2, -1):
        shape: tuple[int, ...] = (1, 2, len(numbers) // 2)
    else:
        shape = (1, len(numbers))
    data = struct.pack(f"<{len(numbers)}{_FORMATS[spec.datatype]}", *numbers)
    return RawTensor(spec.name, spec.datatype, shape, data)


def _flatten_words(words: Iterable[Sequence[int]]) -> list[int]:
    """TensorRT-LLM's word lists: a row of all ids, and one of where each word ends (filled with -1)."""
    words = [word for word in words if word]
    ids = [token for word in words for token in word]
    ends = list(accumulate(len(word) for word in words))
    return ids + ends + [-1] * (len(ids) - len(ends))


def _split_words(rows: Sequence[int]) -> list[list[int]]:
    """The inverse of `_flatten_words`."""
    width = len(rows) // 2
    ids, ends = rows[:width], [end for end in rows[width:] if end > 0]
    if any(start >= end for start, end in pairwise([0, *ends])) or (ends and ends[-1] > width):
        raise MalformedRequest(reason="the second row of stop_words_list does not say where each word ends")
    words = [list(ids[start:end]) for start, end in pairwise([0, *ends])]
    if any(token < 0 for word in words for token in word):
        raise MalformedRequest(reason="stop_words_list has a negative id")
    return words
