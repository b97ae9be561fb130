"""What vLLM's SpeculativeConfig would refuse, in the check of a config."""

import pytest

from builder.check.report import check
from shared.vllm_arguments import SPECULATIVE, table

METHODS = table()["own"][SPECULATIVE]["members"]["method"]["choices"]
DRAFTS_ITSELF = {"dspark", "ngram", "ngram_gpu", *(name for name in METHODS if name.endswith("mtp"))}


def found(**speculative):
    lines = [f"  {key}: {value}" for key, value in speculative.items()]
    text = "\n".join(["engine: vllm", "model: a/b", "speculative_config:", *lines, ""])
    return [(one.key, one.what) for one in check(text, "c.yaml").diagnostics]


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_draft_with_another_model_need_one(method):
    """All of the table: a method that a new version brings has to be put on one of the sides."""
    assert found(method=method, num_speculative_tokens=2, model="a/draft") == []
    without = found(method=method, num_speculative_tokens=2)
    assert [key for key, _ in without] == ([] if method in DRAFTS_ITSELF else [SPECULATIVE])
    assert all(f"must have a draft model: {method} drafts with one" in what for _, what in without)


def test_a_draft_model_may_say_how_many_tokens():
    assert found(method="eagle", model="a/draft") == []
    [(_, what)] = found(method="eagle")
    assert "draft model" in what


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu"])
def test_the_shortest_lookup_is_no_longer_than_the_longest(method):
    given = {"method": method, "num_speculative_tokens": 2}
    [(key, what)] = found(**given, prompt_lookup_min=3, prompt_lookup_max=2)
    assert key == "speculative_config.prompt_lookup_min"
    assert "must be at most prompt_lookup_max, which is 2" in what
    for fits in ({"min": 2, "max": 2}, {"min": 3}, {"max": 2}):
        assert found(**given, **{f"prompt_lookup_{end}": size for end, size in fits.items()}) == []


def test_a_lookup_of_the_wrong_type_is_told_once():
    wrong = {"prompt_lookup_min": "many", "prompt_lookup_max": 2}
    assert len(found(method="ngram", num_speculative_tokens=2, **wrong)) == 1


def test_other_methods_look_nothing_up():
    """Both keys have no effect then."""
    unused = {"prompt_lookup_min": 3, "prompt_lookup_max": 2}
    assert found(method="mtp", num_speculative_tokens=2, **unused) == []
