"""The HTTP server that a supervisor keeps running."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.lifecycle.liveness import wait_until_hung
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

    liveness_path: str

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
    def command(self, control_path: str) -> Command:
        """How to start a process that connects to `control_path`."""

    async def wait_until_broken(self, pid: int, connected: asyncio.Event) -> str:
        """Wait until process `pid` has become useless; return what is wrong with it, in words.

        `connected` is set once it has connected to the control socket.
        """
        del pid
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await connected.wait()
        except TimeoutError:
            return f"did not become ready within {_CONNECT_SECONDS} s"
        await wait_until_hung(reached_at(self.host), self.port, self.liveness_path, tls=self.tls)
        return "does not answer"


class Front(Server):
    """Our own: runner/front.

    The socket is opened here and passed on: clients that connect while a front is replaced wait for the next
    one.
    """

    liveness_path = "/health/live"

    def __init__(self, host: str, port: int, *, tls: bool = False) -> None:
        """Raises SettingInvalid and PortInUse when nothing can listen there."""
        super().__init__(host, port, tls=tls)
        self._listener = listen(host, port)

    def close(self) -> None:
        """As in the base class."""
        self._listener.close()

    def command(self, control_path: str) -> Command:
        """As in the base class."""
        command = [sys.executable, "-m", "runner.front", "--control", control_path]
        fd = self._listener.fileno()
        return Command([*command, "--listen-fd", str(fd)], os.environ, pass_fds=[fd])
