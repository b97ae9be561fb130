"""Servers on loopback that do what a script says: bytes, and when they come."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("loopback.pem")
DRIP_SECONDS = 0.05


class Hostile:
    """Answers each request with what `script` sends; a context manager."""

    def __init__(self, script, *, tls=False):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._script = script
        self._context = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self.stopped = threading.Event()
        self.url = (
            f"http{'s' if tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}/a.tar?signature=secret"
        )
        self._threads = [threading.Thread(target=self._listen)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _listen(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._answer, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _answer(self, connection):
        if self._context:
            with suppress(OSError):
                connection = self._context.wrap_socket(connection, server_side=True)
        with suppress(OSError), closing(connection):
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(4096) or b"\r\n\r\n"
            self._script(self, connection, asked.decode())
            connection.shutdown(socket.SHUT_WR)

    def drip(self, connection, piece=b"x"):
        """Send a little now and then, for ever."""
        while not self.stopped.wait(DRIP_SECONDS):
            connection.sendall(piece)


def says(text):
    """A script that sends this and hangs up."""
    return lambda _server, connection, _asked: connection.sendall(
        text.replace("\n", "\r\n").encode("latin-1")
    )


def drips(text, piece=b"x"):
    def script(server, connection, _asked):
        connection.sendall(text.replace("\n", "\r\n").encode())
        server.drip(connection, piece)

    return script


def floods(text, piece):
    def script(_server, connection, _asked):
        connection.sendall(text.replace("\n", "\r\n").encode())
        while True:
            connection.sendall(piece)

    return script


def redirects(location):
    return says(f"HTTP/1.1 302 Found\nLocation: {location}\nContent-Length: 0\n\n")


def ranged(content_range):
    return says(f"HTTP/1.1 206 Partial Content\nContent-Range: {content_range}\nContent-Length: 1\n\nx")
