"""How long prompts and answers may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome
from cli.acceptance.generation import longest_prompt, prompt_of
from cli.acceptance.server import Refused
from runner.engines.tensorrt_llm.settings import read_settings

if TYPE_CHECKING:
    from .bench import TensorRTLLMBench

_MORE = 16


def _longest_prompt(bench: TensorRTLLMBench) -> Outcome:
    settings = read_settings(bench.engine.path)
    return longest_prompt(bench, settings.max_prompt_tokens(chunked_context=False))


def _max_utilization(bench: TensorRTLLMBench) -> Outcome:
    settings = read_settings(bench.engine.path)
    longest = settings.max_prompt_tokens(chunked_context=False)
    prompt = min(longest // 2, settings.max_seq_len - longest)
    answer = min(longest - prompt + _MORE, settings.max_seq_len - prompt)
    server = bench.serve(arguments={"batch_scheduler_policy": "max_utilization"})
    expected = f"{prompt} tokens and {answer} more are streamed"
    try:
        text = "".join(server.stream(prompt_of(bench, prompt), answer, ignore_eos=True))
    except Refused as error:
        return Outcome(expected, str(error))
    return Outcome(expected, expected if text else "no text")


CHECKS = (
    Check(
        "longest prompt",
        "without chunked context a prompt has at most min(max_seq_len - 1, max_num_tokens) tokens",
        "cpp/tensorrt_llm/batch_manager/trtGptModel.h: getMaxInputLen",
        _longest_prompt,
    ),
    Check(
        "max_utilization",
        "max_utilization enables chunked context, with which long requests may be streamed",
        "cpp/tensorrt_llm/executor/executorImpl.cpp: 'Request sequence length is potentially greater'",
        _max_utilization,
    ),
)
