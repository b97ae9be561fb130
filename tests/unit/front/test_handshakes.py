"""TLS handshakes that stall, come in thousands or are asked for again, and honest clients beside them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import subprocess
import time

import httpx2
import pytest

from runner.front.handshakes import TlsServer, server_context
from tests.support.files import CERTIFICATE
from tests.support.front import running
from tests.support.raw_http import connected, everything, status_of
from tests.support.waiting import wait_for

SECONDS = 0.5
MANY = 400  # more than there may be at the same time
GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.contextmanager
def with_tls(engine_directory, **bounds):
    tls = {"TLS_CERTIFICATE": str(CERTIFICATE), "TLS_KEY": str(CERTIFICATE)}
    with running(engine_directory, bounds=bounds, MAX_CONNECTIONS="20", **tls) as server:
        yield server


def answers(front) -> bool:
    trusting = ssl._create_unverified_context()
    with contextlib.suppress(httpx2.TransportError):
        return httpx2.get(f"{front.url}/health/live", verify=trusting, timeout=20).status_code == 200
    return False


def greeted(connection: socket.socket) -> ssl.SSLSocket:
    return ssl._create_unverified_context().wrap_socket(connection)


def from_address(stack, front, address: str) -> socket.socket:
    target = ("127.0.0.1", front.port)
    return stack.enter_context(socket.create_connection(target, timeout=20, source_address=(address, 0)))


def test_a_handshake_that_does_not_end(engine_directory):
    """It had a minute."""
    with with_tls(engine_directory, header_seconds=SECONDS) as front:
        began = time.monotonic()
        with connected(front, b"\x16\x03\x01") as connection:
            assert everything(connection) == b""
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"])
def test_honest_clients_are_served_beside_handshakes_that_stall(engine_directory, begun):
    """276 shut out everybody else for ten seconds."""
    with with_tls(engine_directory) as front, contextlib.ExitStack() as stack:
        stalled = [stack.enter_context(connected(front, begun)) for _ in range(MANY)]
        began = time.monotonic()
        assert all(answers(front) for _ in range(5))
        assert time.monotonic() < began + 5
        assert everything(stalled[0]) == b""  # the oldest had to go
        stalled[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            stalled[-1].recv(1)


def test_one_address_ends_its_own_handshakes(engine_directory):
    with with_tls(engine_directory) as front, contextlib.ExitStack() as stack:
        patient = from_address(stack, front, "127.0.0.1")
        for _ in range(MANY):
            from_address(stack, front, "127.0.0.2")
        with greeted(patient) as connection:
            connection.sendall(GET)
            assert status_of(connection.recv(1 << 16)) == 200


def test_what_is_no_tls_leaves_nothing(engine_directory):
    with with_tls(engine_directory) as front:
        for _ in range(MANY):
            with connected(front, GET) as plain:
                assert everything(plain) == b""
        assert answers(front)
        [server] = front.server.servers
        wait_for(lambda: not server._handshakes, seconds=5)


def test_thousands_of_handshakes(engine_directory):
    """Whole ones, whose clients then leave."""
    with with_tls(engine_directory) as front:
        for _ in range(1000):
            with socket.create_connection(("127.0.0.1", front.port), timeout=20) as plain, greeted(plain):
                pass
        assert answers(front)
        wait_for(lambda: not front.server.server_state.connections, seconds=5)


def test_a_client_cannot_ask_for_another_handshake(engine_directory):
    """Each costs the server several times what it costs the client."""
    with with_tls(engine_directory) as front:
        client = subprocess.run(
            ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{front.port}"],
            input=b"R\n",
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert b"RENEGOTIATING" in client.stdout + client.stderr
        assert b"no renegotiation" in client.stdout + client.stderr
        assert answers(front)
    assert server_context(CERTIFICATE, CERTIFICATE).options & ssl.OP_NO_RENEGOTIATION


class Listener:
    """A socket that can be accepted from as soon as there are descriptors again."""

    def __init__(self, inside: socket.socket, failures: int) -> None:
        self._inside = inside
        self.failures = failures
        self.asked = 0

    def fileno(self) -> int:
        return self._inside.fileno()

    def setblocking(self, flag: bool) -> None:
        self._inside.setblocking(flag)

    def accept(self):
        self.asked += 1
        if self.asked <= self.failures:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._inside.accept()


def test_no_descriptor_is_no_busy_loop_and_service_returns():
    async def attempts_until_greeted() -> tuple[int, float]:
        with socket.create_server(("127.0.0.1", 0)) as inside:
            listener = Listener(inside, failures=3)
            context = server_context(CERTIFICATE, CERTIFICATE)
            server = TlsServer(listener, asyncio.Protocol, context, most=5, seconds=20)
            port = inside.getsockname()[1]
            began = time.monotonic()
            trusting = ssl._create_unverified_context()
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.close()
            server.close()
            await server.wait_closed()
            return listener.asked, time.monotonic() - began

    asked, seconds = asyncio.run(attempts_until_greeted())
    assert asked <= 3 + 2  # one for the client, and one to see that there are no more
    assert seconds >= 0.3
