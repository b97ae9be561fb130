"""Which variables of the runner's environment Triton and the engine get."""

from __future__ import annotations

from runner.lifecycle.environment import engine_environment
from tests.gpu.serving.machine import MULTICAST_OFF


def test_what_switches_multicast_over_nvlink_off_reaches_the_engine():
    """On machines where it must stay off, an engine on several GPUs without these would use it."""
    others = {"HF_TOKEN": "secret", "WHATEVER": "1"}
    assert engine_environment(MULTICAST_OFF | others) == MULTICAST_OFF
