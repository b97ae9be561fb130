"""The first host of an engine gathers the others: they join it with `cog-triton join`.

What they say: {"host": name, "gpus": n, "identity": {...}} first, and {"failed": text} when they cannot do
what they are told to. What they are told: {"refused": why}, or {"run": [...]}, a command
(runner/lifecycle/joining.py).
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import CogTritonError, EngineStartFailed, HostLost, HostsMissing, from_text

from .link import Link, LinkLost, Listener
from .settings import difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .settings import HostsSettings


@dataclass(eq=False, slots=True)
class Host:
    """A host that has joined. `address` is where it connects from."""

    address: str
    gpus: int
    link: Link

    def run(self, command: Sequence[str]) -> None:
        """Have it run one of the commands that it knows. Raises HostLost."""
        try:
            self.link.send({"run": list(command)})
        except LinkLost as lost:
            raise HostLost(host=self.address, reason=lost) from lost


class Spread(NamedTuple):
    """An engine on several hosts, each with as many processes."""

    per_host: int
    hosts: list[Host]
    """The hosts other than the first."""


def spread(needed: int, own: int, joined: Sequence[Host]) -> Spread | None:
    """Spread the engine over as few hosts as possible; None while there are too few."""
    for count in range(1, len(joined) + 2):
        if needed % count or (per_host := needed // count) > own:
            continue
        able = [host for host in joined if host.gpus >= per_host]
        if len(able) >= count - 1:
            return Spread(per_host, able[: count - 1])
    return None


class Gathering:
    """Listens for hosts while the engine lives: those beyond what it needs wait in case one is lost."""

    def __init__(self, settings: HostsSettings, identity: dict[str, str]) -> None:
        """Raises HostsMissing when it cannot listen."""
        self._settings, self._identity = settings, identity
        self._joined: list[Host] = []
        self._changed = threading.Condition()
        self._used: list[Host] = []
        self.failures: queue.SimpleQueue[CogTritonError] = queue.SimpleQueue()
        """Why the engine cannot go on: one of its hosts was lost, or could not do its part."""
        listener = Listener(settings.secret, self._meet)
        try:
            listener.listen(settings.address)
        except OSError as problem:
            reason = f"this host cannot listen on {settings.address}: {problem.strerror or problem}"
            raise HostsMissing(reason=reason) from None

    def spread(self, needed: int) -> Spread:
        """Wait until there are enough hosts. Raises HostsMissing when they do not come in time."""
        own, seconds = self._settings.gpus, self._settings.seconds
        deadline = time.monotonic() + seconds
        with self._changed:
            while (found := spread(needed, own, self._joined)) is None:
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() > deadline:
                    others = ", ".join(str(host.gpus) for host in self._joined) or "none"
                    there = f"GPUs of this host: {own}, of the others: {others}"
                    raise HostsMissing(reason=f"after {seconds:g} s, GPUs needed: {needed}; {there}")
            self._used = found.hosts
        return found

    def _meet(self, link: Link) -> None:
        address = str(link.connection.getpeername()[0])
        try:
            told = link.receive()
            if why := difference(self._identity, told["identity"]):
                link.send({"refused": why})
                return
            host = Host(address, int(told["gpus"]), link)
        except (LinkLost, KeyError, ValueError, TypeError):
            return
        self._say(f"{told.get('host')} ({address}) has joined; its GPUs: {host.gpus}")
        with self._changed:
            self._joined.append(host)
            self._changed.notify_all()
        try:
            while True:
                self._failed(host, link.receive())
        except LinkLost as lost:
            with self._changed:
                self._joined.remove(host)
                is_used = host in self._used
            self._say(f"{address} has left: {lost}")
            if is_used:
                self.failures.put(HostLost(host=address, reason=lost))

    def _failed(self, host: Host, message: dict[str, Any]) -> None:
        text = str(message.get("failed"))
        reason = f"{host.address} could not do its part: {text}"
        self.failures.put(from_text(text) or EngineStartFailed(reason=reason))

    def _say(self, text: str) -> None:
        sys.stderr.write(f"hosts: {text}\n")
