"""docs/environment.md and docs/tensorrt_llm.md are what the code says."""

from runner import docs
from shared.generated import stale


def test_the_pages_are_fresh():
    assert stale(docs.documents()) == []
