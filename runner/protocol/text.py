"""The tensors of the model `ensemble`, with text as input and output.

Names, datatypes and dims are those of TensorRT-LLM's Triton model (inflight_batcher_llm/ensemble,
config.pbtxt); where we differ, docs/triton.md says so. Standard library only: engine processes import
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runner.protocol.tensors import ANY, ONE, InputTable, TensorSpec
from runner.protocol.tokens import SAMPLING, UNSUPPORTED
from shared.errors import MalformedRequest

if TYPE_CHECKING:
    from runner.protocol.engine import SamplingParameters
    from runner.protocol.frames import RequestFrame

_OTHER_NAMES = {"runtime_top_k": "top_k", "runtime_top_p": "top_p", "len_penalty": "length_penalty"}

_TABLE = InputTable(
    supported=(
        TensorSpec("text_input", "BYTES", ONE, optional=False),
        TensorSpec("max_tokens", "INT32", ONE, optional=False),
        TensorSpec("stop_words", "BYTES", ANY),
        TensorSpec("bad_words", "BYTES", ANY),  # only some engines can: see their `honours`
        TensorSpec("end_id", "INT32", ANY),  # several, as in `tensorrt_llm`
        TensorSpec("stream", "BOOL", ONE),
    ),
    sampling={
        replace(spec, name=_OTHER_NAMES.get(spec.name, spec.name)): meaning
        for spec, meaning in SAMPLING.items()
    },
    unsupported=UNSUPPORTED
    | {
        TensorSpec("decoder_text_input", "BYTES", ONE): (),
        TensorSpec("prompt_table_extra_id", "UINT64", ONE): (),
        TensorSpec("embedding_bias_words", "BYTES", ANY): (),
        TensorSpec("embedding_bias_weights", "FP32", ANY): (),
        TensorSpec("guided_decoding_guide_type", "BYTES", ONE): (),
        TensorSpec("guided_decoding_guide", "BYTES", ONE): (),
    },
    without_effect=(TensorSpec("pad_id", "INT32", ONE),),
)

INPUTS = _TABLE.inputs

OUTPUTS = (
    TensorSpec("text_output", "BYTES", ANY),
    TensorSpec("finish_reason", "INT32", ONE),  # not in TensorRT-LLM's contract
)


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One prompt, as text."""

    request_id: int
    text: str
    max_tokens: int
    end_ids: frozenset[int] | None
    """None: those of the tokenizer."""
    stop_words: tuple[str, ...]
    bad_words: tuple[str, ...]
    sampling: SamplingParameters
    streaming: bool


def decode_text_request(frame: RequestFrame) -> TextRequest:
    """What the inputs of an inference request ask for. Raises MalformedRequest and TensorNotSupported."""
    given = _TABLE.read(frame)
    (max_tokens,) = given["max_tokens"]
    if max_tokens < 1:
        raise MalformedRequest(reason=f"max_tokens is {max_tokens}, but must be at least 1")
    end_ids = given.get("end_id")
    return TextRequest(
        request_id=frame.request_id,
        text=given["text_input"][0],
        max_tokens=max_tokens,
        end_ids=None if end_ids is None else frozenset(token for token in end_ids if token >= 0),
        stop_words=tuple(filter(None, given.get("stop_words", ()))),
        bad_words=tuple(filter(None, given.get("bad_words", ()))),
        sampling=_TABLE.read_sampling(given),
        streaming=given.get("stream") == (True,),
    )
