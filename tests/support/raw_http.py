"""HTTP as bytes on a socket, for what no client library sends."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from types import SimpleNamespace

import uvicorn
import uvloop

from runner.front.protocol import Bounds, bounded


@contextlib.contextmanager
def connected(front, data: bytes = b""):
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as connection:
        connection.sendall(data)
        yield connection


def everything(connection) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            received += data
    return received


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def text_of(answer: bytes) -> str:
    """The error of an answer, whole."""
    # What follows is the answer to what was taken for another request.
    text = answer.partition(b"\r\n\r\n")[2].decode()
    return json.JSONDecoder().raw_decode(text)[0]["error"]


def head(length: int, path: str = "/predictions") -> bytes:
    lines = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"{lines}\r\n".encode()


@contextlib.contextmanager
def serving_asgi(app, **bounds):
    """An ASGI application behind our protocol, in a thread of its own."""
    refused = []
    connection = bounded(Bounds(100, **bounds), refused.append)
    config = uvicorn.Config(app, http=connection, lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]  # the test has them
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: uvloop.run(server.serve([listener])), daemon=True)
        thread.start()
        try:
            port = listener.getsockname()[1]
            yield SimpleNamespace(port=port, server=server, refused=refused)
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)
            assert not thread.is_alive()
