"""Tokens: those of vLLM's own front end, each once, up to an end; and cancelled when nobody wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome
from cli.acceptance.generation import Assumed, checks, longest_prompt

if TYPE_CHECKING:
    from .bench import VLLMBench


def _longest_prompt(bench: VLLMBench) -> Outcome:
    return longest_prompt(bench, bench.max_model_len - 1)


_SCHEDULER = "vllm/v1/core/sched/utils.py: check_stop"

CHECKS = (
    *checks(
        {
            "another end id": Assumed(
                "each id in stop_token_ids ends a text; it is the last new token, which we omit",
                _SCHEDULER,
            ),
            "min_tokens of two end ids": Assumed(
                "before min_tokens, no id in stop_token_ids is chosen",
                "vllm/v1/sample/logits_processor/builtin.py: MinTokensLogitsProcessor",
            ),
            "greedy": Assumed(
                "the engine core writes the tokens of vLLM's LLM class with the same arguments",
                "vllm/v1/engine/core.py; vllm/entrypoints/llm.py",
            ),
            "streaming": Assumed(
                "an output holds what is new since the last one",
                "vllm/v1/engine/__init__.py: EngineCoreOutput",
            ),
            "cancel": Assumed(
                "abort_requests ends a request immediately, and no output follows",
                "vllm/v1/engine/core.py: abort_requests",
            ),
            "stop word": Assumed("a text ends before a stop word, which we match", _SCHEDULER),
        }
    ),
    Check(
        "longest prompt",
        "a prompt leaves room for one token; one that does not would end the core, and is refused first",
        "vllm/v1/engine/input_processor.py, which we bypass",
        _longest_prompt,
    ),
)
