"""What dies is started again, later each time, until it died too often."""

from __future__ import annotations

import time

from runner.lifecycle.restarts import Restarts


def test_the_pauses_grow_and_end():
    of_some = Restarts(most=5)
    assert [of_some.pause() for _ in range(7)] == [0.1, 0.5, 2, 5, 15, None, None]


def test_some_things_are_always_started_again():
    of_one = Restarts()
    assert [of_one.pause() for _ in range(7)] == [0.1, 0.5, 2, 5, 15, 15, 15]


def test_a_death_of_long_ago_is_forgotten(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    of_one = Restarts(most=1)
    assert of_one.pause() == 0.1
    now = 301.0
    assert of_one.pause() == 0.1
    assert of_one.pause() is None
