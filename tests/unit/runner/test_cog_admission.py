"""Who is let in, and how the last ones are let out."""

from __future__ import annotations

import threading

import pytest

from runner.cog.admission import Admission
from shared.errors import Overloaded, ShuttingDown


def test_no_more_than_the_limit_are_inside():
    admission = Admission(2)
    with admission.enter():
        with admission.enter(), pytest.raises(Overloaded, match="2 predictions"), admission.enter():
            pass
        with admission.enter():
            pass


def test_draining_waits_for_those_inside_and_lets_nobody_in():
    admission = Admission(2)
    entered, leave = threading.Event(), threading.Event()

    def visit():
        with admission.enter() as ticket:
            ticket.on_cancel(lambda: pytest.fail("not late"))
            entered.set()
            leave.wait(10)

    visitor = threading.Thread(target=visit)
    visitor.start()
    entered.wait(10)
    drain = threading.Thread(target=admission.drain, args=(30,))
    drain.start()
    while not admission.closed:
        pass
    with pytest.raises(ShuttingDown), admission.enter():
        pass
    assert drain.is_alive()
    leave.set()
    drain.join(10)
    visitor.join(10)
    assert not drain.is_alive()


def test_those_who_stay_too_long_are_told():
    admission = Admission(1)
    with admission.enter() as ticket:
        admission.drain(0.01)
        assert ticket.cancelled
