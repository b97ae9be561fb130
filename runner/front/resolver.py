"""Looks up the names of hosts that clients name.

The system's own resolver is asked, in small processes: only it knows everything that the machine is set up
for, and nothing but the end of a process stops it. Where a name server never answers, it takes half a minute.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

from runner.front.slots import Slots

_PROGRAM = Path(__file__).with_name("resolve_process.py")
_SECONDS = 5
_WAITING_SECONDS = 30
_PROCESSES = 32  # each has 4.5 MB of its own; more than _IDLE end soon
_IDLE = 4
_LONGEST = 4096  # bytes of an answer
# What the system's resolver and the interpreter read. Not the rest: it has secrets.
_VARIABLES = ("HOSTALIASES", "LD_LIBRARY_PATH", "LOCALDOMAIN", "LOCPATH", "RES_OPTIONS")


class Resolver:
    """Looks up several names at a time; one sender's are a quarter of them at most. For one event loop."""

    def __init__(self) -> None:
        self._slots = Slots(_PROCESSES)
        self._idle: list[_Process] = []

    async def addresses(self, host: str, sender: str) -> list[str]:
        """The IP addresses of a host; `sender`: who named it.

        Raises gaierror; another OSError when no process can be started; TimeoutError after 5 s, or when the
        sender's own look-ups leave no room for 30 s.
        """
        try:
            return _numeric(host)
        except socket.gaierror:  # it is a name
            pass
        async with asyncio.timeout(_WAITING_SECONDS + _SECONDS), self._slots.slot(sender):
            return await self._look_up(host)

    def close(self) -> None:
        """End its processes."""
        while self._idle:
            self._idle.pop().end()

    async def _look_up(self, host: str) -> list[str]:
        process = self._idle.pop() if self._idle else _Process()
        answered = False
        try:
            async with asyncio.timeout(_SECONDS):
                answer = await process.ask(host)
            answered = True
        finally:
            if answered and len(self._idle) < _IDLE:
                self._idle.append(process)
            else:
                process.end()
        if answer.lstrip("-").isdecimal():
            raise socket.gaierror(int(answer), "the name cannot be looked up")
        return answer.split()


class _Process:
    """One that looks up a name at a time."""

    def __init__(self) -> None:
        """Raises OSError when it cannot be started."""
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_PROGRAM), str(_SECONDS + 1)],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
                    start_new_session=True,  # Ctrl-C is for this process
                )
        except OSError:
            self._socket.close()
            raise

    async def ask(self, host: str) -> str:
        """Its answer. Raises OSError when it has ended instead."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, f"{host}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            piece = await loop.sock_recv(self._socket, _LONGEST)
            if not piece:
                raise ConnectionError
            answer += piece
        return answer.decode().rstrip("\n")

    def end(self) -> None:
        """Kill it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _numeric(host: str) -> list[str]:
    """The address that a host is itself. Raises gaierror for a name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except UnicodeError:  # an empty label, or one of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    return [str(address[0]) for *_, address in found]
