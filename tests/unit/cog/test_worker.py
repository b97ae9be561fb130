"""The predictor under Cog's own server."""

import pytest

from runner.cog import worker
from runner.settings import Settings


@pytest.mark.parametrize(
    ("environment", "limit", "fix"),
    [
        ({"COG_MAX_CONCURRENCY": "10"}, 8, "raise COG_MAX_CONCURRENCY"),
        ({"COG_MAX_CONCURRENCY": "10", "MAX_PREDICTIONS": "5"}, 5, "raise MAX_PREDICTIONS"),
    ],
)
def test_the_limit_is_that_of_the_setting_it_comes_from(environment, limit, fix, monkeypatch):
    made = []

    def admission(*limits, **more):
        made.append((*limits, more))
        raise InterruptedError

    monkeypatch.setattr(worker, "Admission", admission)
    with pytest.raises(InterruptedError):
        worker.Worker(Settings.from_environment(environment))
    assert made == [(limit, {"fix": fix})]
