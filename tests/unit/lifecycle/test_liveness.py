"""Which servers hang: the rule, by a clock of the test."""

from __future__ import annotations

import pytest

from runner.lifecycle.liveness import HUNG_SECONDS, Stall


def looks(stall: Stall, turns, cpu=lambda _second: 0.0, *, start=1000, seconds=100) -> int | None:
    """The second in which it is found to hang, if each is looked at."""
    for second in range(seconds):
        if stall.look(turns(second), start + second, cpu(second)) is not None:
            return second
    return None


@pytest.mark.parametrize("cpu", [0.0, 0.5, 1.0], ids=["blocked", "slow", "spinning"])
def test_no_turn_for_thirty_seconds_is_hung_whatever_the_cpu(cpu):
    assert looks(Stall(HUNG_SECONDS), lambda _second: 7, lambda second: cpu * second) == 30


@pytest.mark.parametrize("every", [1, 2, 14, 29])
def test_a_turn_now_and_then_is_progress(every):
    assert looks(Stall(HUNG_SECONDS), lambda second: second // every) is None


def test_a_process_that_was_stopped_for_fourteen_seconds_goes_on():
    assert looks(Stall(HUNG_SECONDS), lambda second: max(4 * second, 56)) is None


def test_the_words_tell_one_that_spins_from_one_that_waits():
    stall = Stall(30)
    assert stall.look(7, 1000, 2.0) is None
    for second in range(1, 30):
        assert stall.look(7, 1000 + second, 2.0 + second) is None
    assert stall.look(7, 1030, 31.5) == "has made no progress for 30 s, with 29.5 s of CPU time"


@pytest.mark.parametrize("away", [3.5, 60, 86400])
def test_a_machine_that_was_suspended_counts_anew(away):
    """The supervisor and the front slept both: nobody knows who would have woken first."""
    stall = Stall(HUNG_SECONDS)
    assert looks(stall, lambda _second: 7, seconds=29) is None
    assert looks(stall, lambda _second: 7, start=1028 + away) == 30


def test_a_supervisor_that_hardly_runs_itself_kills_nobody():
    stall = Stall(HUNG_SECONDS)
    assert all(stall.look(7, 1000 + 4 * look, 0.0) is None for look in range(100))
