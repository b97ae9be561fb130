"""What vLLM's processes find in their environment."""

from __future__ import annotations

import os

import pytest

from runner.engines.vllm.environment import vllm_environment
from shared.home import SCRATCH

SOCKETS = "VLLM_RPC_BASE_PATH"


@pytest.fixture
def environment(monkeypatch):
    """os.environ, as it was again afterwards."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop(SOCKETS, None)
    return os.environ


@pytest.mark.parametrize(
    ("scratch", "sockets"),
    [
        ("/run/scratch", "/run/scratch"),
        ("/" + 69 * "a", "/" + 69 * "a"),
        ("/" + 70 * "a", None),
        (None, None),
    ],
)
def test_sockets_are_where_the_runner_removes_them_if_their_paths_fit(environment, scratch, sockets):
    if scratch:
        environment[SCRATCH] = scratch
    with vllm_environment():
        assert environment.get(SOCKETS) == sockets


def test_the_operator_says_where_the_sockets_are(environment):
    environment |= {SCRATCH: "/run/scratch", SOCKETS: "/sockets"}
    with vllm_environment():
        assert environment[SOCKETS] == "/sockets"
