"""A whole runner on two hosts, of a TensorRT-LLM engine: the real Open MPI, and the executor's stand-in."""

from __future__ import annotations

from tests.hosts.runner import TwoHosts
from tests.support.processes import MARK
from tests.support.tensorrt_llm_engine import runner_environment, stand_in_tokens

PROMPT = "20"
START_SECONDS = 120


def text_of(tokens: int) -> str:
    """What the stand-in answers: the word n is token n + 5."""
    return " ".join(str(token - 5) for token in stand_in_tokens([int(PROMPT) + 5], tokens))


def test_answers_come_through_both_apis_and_again_after_the_other_host_was_lost(tmp_path, namespaces, mark):
    settings = runner_environment(tmp_path, tp_size=2, step_seconds=0.01)
    hosts = TwoHosts(namespaces, tmp_path, tmp_path / "engine")
    settings |= {MARK: mark, "ENGINE_ENVIRONMENT": MARK}
    with hosts.serving(**settings):
        with hosts.joining(**settings) as joining:
            hosts.wait_ready(START_SECONDS)
            assert hosts.by_cog(PROMPT, 40) == text_of(40)
            assert hosts.by_openai(PROMPT, 40) == text_of(40)
            hosts.lose(PROMPT, 3000, joining.kill)
        with hosts.joining(**settings):
            hosts.wait_ready(START_SECONDS)
            assert hosts.by_cog(PROMPT, 40) == text_of(40)
