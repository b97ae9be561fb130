"""Tokens: those of the checkpoint, each once, up to an end; and cancelled when nobody wants them."""

from __future__ import annotations

from cli.acceptance.generation import Assumed, checks

_LLM_REQUEST = "cpp/tensorrt_llm/batch_manager/llmRequest.cpp: createResult"

CHECKS = checks(
    {
        "greedy": Assumed(
            "without top_k and top_p the likeliest token is chosen: the text is that of the checkpoint",
            "cpp/tensorrt_llm/kernels/samplingTopKKernels.cu",
        ),
        "streaming": Assumed(
            "streaming gives each token once, and one answer gives them all; neither holds the prompt",
            _LLM_REQUEST,
        ),
        "cancel": Assumed(
            "cancel_request ends a request at its next step",
            "cpp/tensorrt_llm/executor/executorImpl.cpp: terminateCancelledRequests",
        ),
        "end id": Assumed(
            "the end id ends a text and is not in the output",
            "cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu, samplingTopKKernels.cu",
        ),
        "min_tokens": Assumed(
            "the minimum-length penalty keeps end_id from being chosen",
            "cpp/tensorrt_llm/kernels/penaltyKernels.cu: minLength",
        ),
        "another end id": Assumed(
            "a stop word of one token ends a text with the finish reason STOP_WORDS, and stays in the output",
            "cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu",
        ),
        "min_tokens of another end id": Assumed(
            "a token that is neither end_id nor a stop word is written, even where we end at it later",
            "cpp/tensorrt_llm/kernels/penaltyKernels.cu masks end_id alone",
        ),
        "stop word": Assumed("a text ends before a stop word", _LLM_REQUEST),
    }
)
