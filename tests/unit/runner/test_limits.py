"""How much a prompt and its answer may hold."""

from __future__ import annotations

from runner.prediction.limits import lowered
from runner.protocol.engine import Limits


def test_a_setting_can_only_lower_them():
    assert lowered(Limits(100, 50), 200) == Limits(100, 50)
    assert lowered(Limits(100, 50), 60) == Limits(60, 50)
    assert lowered(Limits(100, 50), 20) == Limits(20, 19)
    assert lowered(Limits(100, 50), None) == Limits(100, 50)
