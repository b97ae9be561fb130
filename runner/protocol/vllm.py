"""The tensors of the model with the inputs and outputs of Triton's own vLLM backend.

Names, datatypes and dims are those of vllm_backend (src/model.py); where we differ, docs/vllm.md says so.
Nothing here has a batch dimension. Standard library only: engine processes import it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from runner.protocol.engine import SamplingParameters
from runner.protocol.frames import DATATYPES
from runner.protocol.tensors import ANY, ONE, InputTable, TensorSpec, tensor_values
from shared.errors import MalformedRequest, TensorNotSupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runner.protocol.frames import RequestFrame

PARAMETER = "parameter:"
"""The bridge's prefix for the name of a request's parameter, to distinguish it from an input."""

_RETURNED = (
    "return_finish_reason",
    "return_cumulative_logprob",
    "return_logprobs",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
_TABLE = InputTable(
    supported=(
        TensorSpec("text_input", "BYTES", ONE, optional=False),
        TensorSpec("stream", "BOOL", ONE),
        TensorSpec("sampling_parameters", "BYTES", ONE),
        TensorSpec("exclude_input_in_output", "BOOL", ONE),
        *(TensorSpec(name, "BOOL", ONE) for name in _RETURNED),
    ),
    sampling={},
    unsupported={
        TensorSpec("image", "BYTES", ANY): (),
        TensorSpec("embedding_request", "BYTES", ONE): (),
    },
    without_effect=(),
    batched=False,
)

INPUTS = _TABLE.inputs

OUTPUTS = (
    TensorSpec("text_output", "BYTES", ANY),
    TensorSpec("finish_reason", "BYTES", ANY),
    TensorSpec("cumulative_logprob", "FP32", ANY),
    TensorSpec("logprobs", "BYTES", ANY),
    TensorSpec("num_input_tokens", "UINT32", ONE),
    TensorSpec("num_output_tokens", "UINT32", ANY),
)

# The fields of vLLM's SamplingParams that we have under the same name.
_SAMPLING = {one.name for one in fields(SamplingParameters)} - {"length_penalty"}
_INTEGERS = {name for name, kind in get_type_hints(SamplingParameters).items() if int in get_args(kind)}
_MAX_TOKENS = 16  # vLLM's default
_WHOLE = range(-(2**63), 2**64)
# The other fields of vLLM's SamplingParams, and the values that ask for nothing.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (None, 1),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
    "detokenize": (True,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "truncate_prompt_tokens": (None,),
    "prompt_logprobs": (None,),
    "allowed_token_ids": (None, []),
    "guided_decoding": (None, {}),
    "extra_args": (None, {}),
    "thinking_token_budget": (None,),
    "repetition_detection": (None,),
    "output_kind": (None,),
    "flat_logprobs": (False,),
    "logprob_token_ids": (None, []),
    "routed_experts_prompt_start": (None, 0),
    "skip_clone": (False,),
    "skip_reading_prefix_cache": (None, False),
}


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """One prompt, as text, and what to report about its answer."""

    request_id: int
    text: str
    max_tokens: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    bad_words: tuple[str, ...]
    ignores_end: bool
    logit_bias: Mapping[int, float]
    log_probs: int | None
    sampling: SamplingParameters
    streaming: bool
    structure: Mapping[str, Any]
    """What constrains the text, in vLLM's words; empty if nothing does."""
    echo: bool
    """Whether the prompt precedes the answer."""
    lora: str | None
    """The name of an adapter."""
    returned: frozenset[str] = field(default=frozenset())
    """The outputs that are given besides the text."""


def decode_backend_request(frame: RequestFrame) -> BackendRequest:
    """What the inputs and parameters of an inference request ask for. Raises MalformedRequest and
    TensorNotSupported.
    """
    given = _TABLE.read(frame, skip=PARAMETER)
    streaming = _flag(given, "stream")
    excluded = given.get("exclude_input_in_output")
    if streaming and excluded == (False,):
        raise MalformedRequest(
            reason="exclude_input_in_output is false, but streamed output cannot include the prompt"
        )
    parameters = _Parameters(_parameters(frame, given))
    returned = frozenset(name.removeprefix("return_") for name in _RETURNED if _flag(given, name))
    log_probs = parameters.number("logprobs", int)
    if log_probs is None and "cumulative_logprob" in returned:
        log_probs = 0
    sampling: dict[str, Any] = {
        name: parameters.number(name, int if name in _INTEGERS else float) for name in _SAMPLING
    }
    # As in vLLM by default: among all tokens.
    for name in ("temperature", "top_p"):
        if sampling[name] is None:
            sampling[name] = 1.0
    max_tokens = parameters.number("max_tokens", int)
    request = BackendRequest(
        request_id=frame.request_id,
        text=given["text_input"][0],
        max_tokens=_MAX_TOKENS if max_tokens is None else int(max_tokens),
        stop=parameters.texts("stop"),
        stop_token_ids=parameters.tokens("stop_token_ids"),
        bad_words=parameters.texts("bad_words"),
        ignores_end=parameters.flag("ignore_eos"),
        logit_bias=parameters.biases("logit_bias"),
        log_probs=None if log_probs is None else int(log_probs),
        sampling=SamplingParameters(**sampling),
        streaming=streaming,
        structure=parameters.object("structured_outputs"),
        echo=not streaming and excluded != (True,),
        lora=parameters.text("lora_name"),
        returned=returned,
    )
    parameters.refuse_the_rest()
    return request


def encode_tensors(values: Mapping[str, str | float]) -> bytes:
    """Outputs of one element each, as an output of a STEP holds them: like the tensors of a REQUEST."""
    parts: list[bytes] = []
    for spec in OUTPUTS:
        if (value := values.get(spec.name)) is None:
            continue
        if spec.datatype == "BYTES":
            text = str(value).encode()
            data = struct.pack("<I", len(text)) + text
        else:
            data = struct.pack("<f" if spec.datatype == "FP32" else "<I", value)
        name = spec.name.encode()
        head = struct.pack("<BBqI", DATATYPES.index(spec.datatype), 1, 1, len(data))
        parts += (struct.pack("<B", len(name)), name, head, data)
    return b"".join(parts)


def _flag(given: Mapping[str, tuple[Any, ...]], name: str) -> bool:
    return given.get(name) == (True,)


def _parameters(frame: RequestFrame, given: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The parameters in the input that holds them as JSON, or else the request's own."""
    if "sampling_parameters" not in given:
        found = {}
        for tensor in frame.tensors:
            if tensor.name.startswith(PARAMETER):
                spec = TensorSpec(tensor.name, tensor.datatype, ONE)
                (found[tensor.name.removeprefix(PARAMETER)],) = tensor_values(tensor, spec)
        return found
    try:
        content = json.loads(given["sampling_parameters"][0] or "{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise MalformedRequest(reason="sampling_parameters is not a JSON object")
    return content


class _Parameters:
    """Takes out one after another; numbers may be written as text, as Triton's clients do."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    def number(self, name: str, kind: type[int | float]) -> float | None:
        value = self._given.pop(name, None)
        if value is None:
            return None
        try:
            number = None if isinstance(value, bool) else kind(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        same = value if isinstance(value, float) else number
        if number is not None and number == same and (kind is float or number in _WHOLE):
            return number
        raise _wrong(name, "a whole number of 64 bits" if kind is int else "a number")

    def flag(self, name: str) -> bool:
        value = self._given.pop(name, False)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise _wrong(name, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._given.pop(name, None)
        values = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise _wrong(name, "a text, or a list of texts")
        return tuple(filter(None, values))

    def text(self, name: str) -> str | None:
        value = self._given.pop(name, None)
        if not isinstance(value, str | None):
            raise _wrong(name, "a text")
        return value or None

    def tokens(self, name: str) -> tuple[int, ...]:
        values = self._given.pop(name, None) or []
        if not isinstance(values, list) or not all(type(one) is int and 0 <= one < 2**31 for one in values):
            raise _wrong(name, "a list of token ids")
        return tuple(values)

    def object(self, name: str) -> dict[str, Any]:
        """An object, or JSON in a text, as Triton's clients write it."""
        value = self._given.pop(name, None) or {}
        try:
            found = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _wrong(name, "a JSON object")
        return found

    def biases(self, name: str) -> dict[int, float]:
        value = self._given.pop(name, None) or {}
        try:
            return {int(token): float(bias) for token, bias in value.items()}
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise _wrong(name, "an object of numbers, by token id") from None

    def refuse_the_rest(self) -> None:
        """Raises TensorNotSupported for what vLLM has but is not supported here, MalformedRequest for unknown
        ones.
        """
        for name, value in self._given.items():
            if name.startswith("triton_"):
                continue  # of Triton itself
            if name not in _NEUTRAL:
                hint = "".join(get_close_matches(name, [*_KNOWN, *_NEUTRAL], 1))
                meant = f" (did you mean {hint}?)" if hint else ""
                raise MalformedRequest(reason=f"there is no sampling parameter {name!r}{meant}")
            if value not in _NEUTRAL[name]:
                raise TensorNotSupported(tensor=f"sampling_parameters.{name}")


_KNOWN: Iterable[str] = (
    *sorted(_SAMPLING),
    *("max_tokens", "stop", "stop_token_ids", "bad_words", "ignore_eos", "logit_bias", "logprobs"),
    *("structured_outputs", "lora_name"),
)


def _wrong(name: str, wanted: str) -> MalformedRequest:
    return MalformedRequest(reason=f"the sampling parameter {name} is not {wanted}")
