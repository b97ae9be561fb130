"""What dies is started again, later each time."""

from __future__ import annotations

import time

import pytest

from runner.lifecycle.restarts import Restarts


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still; add to `clock[0]`."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_pauses_grow_up_to_a_limit(clock):
    restarts = Restarts()
    assert [restarts.pause() for _ in range(7)] == [0.1, 0.5, 2, 5, 15, 15, 15]
    assert (restarts.recent, restarts.total) == (7, 7)


def test_a_death_of_long_ago_does_not_count_as_recent(clock):
    restarts = Restarts()
    assert restarts.pause() == 0.1
    clock[0] = 301.0
    assert restarts.pause() == 0.1
    assert (restarts.recent, restarts.total) == (1, 2)
