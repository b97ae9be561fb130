"""Accepts connections of TLS, and bounds how many are in their handshake."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

_ACCEPTED_IN_ONE_PASS = 12
_PAUSE_SECONDS = 0.1
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 and 1.3, in which a client cannot ask for another handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(certificate, key)
    return context


class TlsServer:
    """Has what asyncio's servers have, as far as uvicorn needs it.

    When there are too many handshakes, the oldest ends, of the client address that has most of them: the
    handshake of an honest client takes less than a second.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        most: int,
        seconds: float,
    ) -> None:
        """`most` handshakes at the same time, each for so many `seconds`."""
        self._listener = listener
        self._make_protocol = make_protocol
        self._context = context
        self._most = most
        self._seconds = seconds
        self._handshakes: dict[asyncio.Task[None], str] = {}
        """The client address of each, the oldest first."""
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more, and end what has not been greeted."""
        self._loop.remove_reader(self._listener)
        if self._resume is not None:
            self._resume.cancel()
        for handshake in self._handshakes:  # each is forgotten later, when it has ended
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until no handshake is left."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_IN_ONE_PASS):
            try:
                connection, address = self._listener.accept()
            except OSError as problem:
                if (
                    problem.errno in _EXHAUSTED
                ):  # the listener stays readable: asking again would be a busy loop
                    self._loop.remove_reader(self._listener)
                    self._resume = self._loop.call_later(_PAUSE_SECONDS, self._listen)
                    return
                if isinstance(problem, BlockingIOError):
                    return
                continue  # the client has gone already
            self._make_room()
            handshake = self._loop.create_task(self._greet(connection))
            self._handshakes[handshake] = str(address[0])
            handshake.add_done_callback(self._forget)

    def _forget(self, handshake: asyncio.Task[None]) -> None:
        self._handshakes.pop(handshake, None)

    def _make_room(self) -> None:
        if len(self._handshakes) < self._most:
            return
        [(busiest, _)] = Counter(self._handshakes.values()).most_common(1)
        oldest = next(task for task, address in self._handshakes.items() if address == busiest)
        self._forget(oldest)
        oldest.cancel()

    async def _greet(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._seconds,
            )
        except OSError:  # no TLS, too slow, or gone; uvloop has closed it
            pass
