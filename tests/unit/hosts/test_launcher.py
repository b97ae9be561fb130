"""Whom the launcher of ranks has a host start something for, and which host it names when ranks end."""

from __future__ import annotations

import socket
import subprocess
import sys
from functools import partial
from typing import Any, cast

import pytest

from runner.engines.hosts.gathering import Host
from runner.engines.hosts.link import connect
from runner.engines.tensorrt_llm.launcher import _Launcher
from runner.engines.tensorrt_llm.ranks import IN_ORDER, LAUNCH_SECRET, ON_SIGNAL
from shared.errors import HostLost
from tests.support.waiting import wait_for

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
        launcher = _Launcher(2, bridge)
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


def _more_ends(launcher: _Launcher, known: int) -> bool:
    return launcher._ends.qsize() > known


def mpirun_that_returns_0() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


@pytest.mark.parametrize(
    ("first", "then", "named"),
    [
        (("here", ON_SIGNAL), ("there", None), True),
        (("there", None), ("here", ON_SIGNAL), True),
        (("there", ON_SIGNAL), ("here", ON_SIGNAL), True),
        (("here", None), ("there", ON_SIGNAL), False),
        (("here", None), ("there", None), False),
        (("there", IN_ORDER), ("here", IN_ORDER), False),
        (("there", ON_SIGNAL), ("here", None), False),
    ],
)
def test_the_host_is_named_because_of_which_the_ranks_ended(launcher, first, then, named):
    secret = launcher.environment[LAUNCH_SECRET].encode()
    links = {"here": connect(launcher.name, secret), "there": connect(launcher.address, secret)}
    links["here"].send({"rank": 0})
    socket.recv_fds(links["here"].connection, 1, 1)
    links["there"].send({"rank": 1})
    for where, last_words in (first, then):
        if last_words is not None:
            links[where].send(last_words)
        known = launcher._ends.qsize()
        links[where].close()
        wait_for(partial(_more_ends, launcher, known))
    if named:
        with pytest.raises(HostLost, match=r"127\.0\.0\.1.*a rank there ended before the others"):
            launcher.attend(mpirun_that_returns_0())
    else:
        launcher.attend(mpirun_that_returns_0())
