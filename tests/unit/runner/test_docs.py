"""docs/environment.md is what the settings say."""

from runner import docs
from shared.generated import stale


def test_the_page_is_fresh():
    assert stale({"docs/environment.md": docs.page()}) == []
