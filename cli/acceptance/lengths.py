"""How long prompts and answers may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.engines.tensorrt_llm.settings import read_settings

from .check import Check, Outcome
from .generation import references
from .server import Refused

if TYPE_CHECKING:
    from .bench import Bench

_MORE = 16


def _prompt(bench: Bench, length: int) -> list[int]:
    tokens = references(bench)[0].prompt
    return (tokens * (length // len(tokens) + 1))[:length]


def _longest_prompt(bench: Bench) -> Outcome:
    longest = read_settings(bench.short.path).max_prompt_tokens(chunked_context=False)
    server = bench.serve()

    def said(length: int) -> str:
        try:
            server.complete(_prompt(bench, length), 1)
        except Refused as error:
            return str(error).partition(" ")[0]
        return "taken"

    return Outcome(
        f"{longest}: taken, {longest + 1}: E1002",
        f"{longest}: {said(longest)}, {longest + 1}: {said(longest + 1)}",
    )


def _max_utilization(bench: Bench) -> Outcome:
    settings = read_settings(bench.short.path)
    longest = settings.max_prompt_tokens(chunked_context=False)
    prompt = min(longest // 2, settings.max_seq_len - longest)
    answer = min(longest - prompt + _MORE, settings.max_seq_len - prompt)
    server = bench.serve(arguments={"batch_scheduler_policy": "max_utilization"})
    expected = f"{prompt} tokens and {answer} more are streamed"
    try:
        text = "".join(server.stream(_prompt(bench, prompt), answer, ignore_eos=True))
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
        "with chunked context, which it turns on, long requests may be streamed under max_utilization",
        "cpp/tensorrt_llm/executor/executorImpl.cpp: 'Request sequence length is potentially greater'",
        _max_utilization,
    ),
)
