"""Tokens: those of the checkpoint, each once, until an end; and cancelled when nobody wants them."""

from __future__ import annotations

from functools import partial

from cli.acceptance.check import Check
from cli.acceptance.generation import (
    cancel,
    ends_before,
    greedy,
    min_tokens,
    stop_word,
    streaming,
    written_before_minimum,
)

_LLM_REQUEST = "cpp/tensorrt_llm/batch_manager/llmRequest.cpp: createResult"

CHECKS = (
    Check(
        "greedy",
        "without top_k and top_p the likeliest token is taken: the text is that of the checkpoint",
        "cpp/tensorrt_llm/kernels/samplingTopKKernels.cu",
        greedy,
    ),
    Check(
        "streaming",
        "streaming gives each token once, and one answer gives them all; neither holds the prompt",
        _LLM_REQUEST,
        streaming,
    ),
    Check(
        "cancel",
        "cancel_request ends a request at its next step",
        "cpp/tensorrt_llm/executor/executorImpl.cpp: terminateCancelledRequests",
        cancel,
    ),
    Check(
        "end id",
        "the end id ends a text and is not in the output",
        "cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu, samplingTopKKernels.cu",
        partial(ends_before, alone=True),
    ),
    Check(
        "min_tokens",
        "the minimum-length penalty keeps end_id from being chosen",
        "cpp/tensorrt_llm/kernels/penaltyKernels.cu: minLength",
        partial(min_tokens, alone=True),
    ),
    Check(
        "another end id",
        "a stop word of one token ends with STOP_WORDS, and stays in the output",
        "cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu",
        partial(ends_before, alone=False),
    ),
    Check(
        "min_tokens of another end id",
        "a token that is neither end_id nor a stop word is written, also where we end at it later",
        "cpp/tensorrt_llm/kernels/penaltyKernels.cu masks end_id alone",
        written_before_minimum,
    ),
    Check("stop word", "a text ends before a stop word", _LLM_REQUEST, stop_word),
)
