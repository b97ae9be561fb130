"""What an engine cannot do as it is configured, though vLLM can."""

from __future__ import annotations

from types import SimpleNamespace

from runner.engines.vllm.engine import lacking


def test_what_has_no_effect_with_speculation_is_not_taken():
    """Its core ignores them then, and answers as if they had not been sent."""
    plain = SimpleNamespace(scheduler_config=SimpleNamespace(policy="priority"), speculative_config=None)
    assert lacking(plain, has_adapters=True) == set()
    plain.speculative_config = SimpleNamespace(method="draft_model")
    assert lacking(plain, has_adapters=True) == {"min_p", "logit_bias"}


def test_no_structure_is_followed_where_it_would_end_the_core():
    """With this method, the core died at the first one: here, that is the start's own."""
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(policy="priority"),
        speculative_config=SimpleNamespace(method="ngram_gpu"),
    )
    assert "structured_output" in lacking(config, has_adapters=True)


def test_adapters_and_priorities_need_their_settings():
    config = SimpleNamespace(scheduler_config=SimpleNamespace(policy="fcfs"), speculative_config=None)
    assert lacking(config, has_adapters=False) == {"lora", "priority"}
