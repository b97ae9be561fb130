"""What is said of a process that ended."""

import pytest

from shared.signals import in_words


@pytest.mark.parametrize(
    ("status", "words"), [(0, "status 0"), (3, "status 3"), (-9, "signal SIGKILL"), (-40, "signal 40")]
)
def test_how_a_process_ended(status, words):
    assert in_words(status) == words
