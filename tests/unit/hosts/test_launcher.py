"""Whom the launcher of ranks has a host start something for."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from runner.engines.hosts.gathering import Host
from runner.engines.hosts.link import connect
from runner.engines.tensorrt_llm.launcher import _Launcher
from runner.engines.tensorrt_llm.ranks import LAUNCH_SECRET

OTHER = "10.0.0.2"
COMMAND = ["orted", "--daemonize"]


class Joined:
    """The link of a host that has joined."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.told.append(message)


@pytest.fixture
def launcher():
    bridge, other = socket.socketpair()
    with bridge, other:
        launcher = _Launcher(bridge)
        launcher.listen("127.0.0.1:0")
        yield launcher
        launcher._listener.close()


@pytest.mark.parametrize("local", [True, False], ids=["mpirun's agent", "over the network"])
def test_only_on_this_host_anybody_may_ask_to_start_something(launcher, local):
    link = Joined()
    launcher.hosts = {OTHER: Host(OTHER, 1, cast("Any", link))}
    secret = launcher.environment[LAUNCH_SECRET].encode()
    asking = connect(launcher.name if local else launcher.address, secret)
    asking.send({"start": OTHER, "command": COMMAND})
    assert asking.receive() == {"started": local}
    assert link.told == ([{"run": COMMAND}] if local else [])
    asking.close()
