"""The HTTP server that a supervisor keeps running."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.lifecycle.heartbeat import Heartbeat
from runner.lifecycle.liveness import HUNG_SECONDS, wait_until_hung
from runner.triton.address import reached_at
from shared.cog.server import listen
from shared.resolving import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_CONNECT_SECONDS = 60  # until then it only imports


@dataclass(frozen=True, slots=True)
class Command:
    """How a process is started."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: Path | None = None
    """Its working directory; None: ours."""
    pass_fds: Sequence[int] = ()


class Server(ABC):
    """How it is started, and how to tell that it no longer works."""

    def __init__(self, host: str, port: int, *, tls: bool = False) -> None:
        self.host = host
        self.port = port
        self.tls = tls

    @property
    def url(self) -> str:
        """Its address from this machine."""
        return f"http{'s' if self.tls else ''}://{written(reached_at(self.host), self.port)}"

    @abstractmethod
    def close(self) -> None:
        """Stop accepting connections, once the process has ended."""

    @abstractmethod
    def command(self, control_path: str, restarts: int) -> Command:
        """How to start a process that connects to `control_path`, after that many others."""

    async def wait_until_broken(self, pid: int, connected: asyncio.Event) -> str:
        """Wait until process `pid` has become useless; return what is wrong with it, in words.

        `connected` is set once it has connected to the control socket.
        """
        connecting = asyncio.create_task(connected.wait())
        hung = asyncio.create_task(wait_until_hung(pid, connected.is_set, _CONNECT_SECONDS))
        try:
            await asyncio.wait({connecting, hung}, return_when=asyncio.FIRST_COMPLETED)
            if not connected.is_set():
                return f"did not become ready within {_CONNECT_SECONDS} s"
        finally:
            connecting.cancel()
            hung.cancel()
        return await self._wait_until_hung(pid)

    @abstractmethod
    async def _wait_until_hung(self, pid: int) -> str:
        """Wait until process `pid`, which has connected, hangs; return how, in words."""


class Front(Server):
    """Our own: runner/front.

    The socket is opened here and passed on: clients that connect while a front is replaced wait for the next
    one. So is the memory in which each counts the turns of its event loop.
    """

    def __init__(
        self, host: str, port: int, *, tls: bool = False, hung_seconds: float = HUNG_SECONDS
    ) -> None:
        """Raises SettingInvalid and PortInUse when nothing can listen there."""
        super().__init__(host, port, tls=tls)
        self._listener = listen(host, port)
        self._heartbeat_fd = Heartbeat.create()
        self._heartbeat = Heartbeat(self._heartbeat_fd)
        self._hung_seconds = hung_seconds

    def close(self) -> None:
        """As in the base class."""
        self._listener.close()

    def command(self, control_path: str, restarts: int) -> Command:
        """As in the base class."""
        fds = {"--listen-fd": self._listener.fileno(), "--heartbeat-fd": self._heartbeat_fd}
        command = [sys.executable, "-m", "runner.front", "--control", control_path]
        command += ["--restarts", str(restarts), *(str(word) for pair in fds.items() for word in pair)]
        return Command(command, os.environ, pass_fds=list(fds.values()))

    async def _wait_until_hung(self, pid: int) -> str:
        return await wait_until_hung(pid, lambda: self._heartbeat.count, self._hung_seconds)
