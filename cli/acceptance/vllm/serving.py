"""Tokens: those of vLLM's own front end, each once, up to an end; and cancelled when nobody wants them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome
from cli.acceptance.generation import Assumed, checks, longest_prompt, references

if TYPE_CHECKING:
    from .bench import VLLMBench


_STRUCTURES = 100
_TOKENS = 16


def _structures(bench: VLLMBench) -> Outcome:
    """Each request has one text to write, while a full batch of others has other ones."""
    server, prompt = bench.serve(), references(bench)[0].prompt
    wanted = [f"number {number}" for number in range(_STRUCTURES)]

    def written(text: str) -> str:
        return server.complete(prompt, _TOKENS, structured_outputs={"choice": [text]}).text

    with ThreadPoolExecutor(bench.places) as pool:
        found = list(pool.map(written, wanted))
    others = [f"{text!r}: {other!r}" for text, other in zip(wanted, found, strict=True) if text != other]
    expected = f"{_STRUCTURES} of {_STRUCTURES} texts are those asked for"
    return Outcome(expected, f"{len(others)} are not; {others[0]}" if others else expected)


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
        "structures",
        "each of the structures that are compiled and followed at the same time is that of its request",
        "vllm/v1/structured_output/__init__.py: threads; backend_guidance.py, which we copy for each",
        _structures,
    ),
    Check(
        "longest prompt",
        "a prompt leaves room for one token; one that does not would end the core, and is refused first",
        "vllm/v1/engine/input_processor.py, which we bypass",
        _longest_prompt,
    ),
)
