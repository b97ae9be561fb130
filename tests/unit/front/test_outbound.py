"""Files that are sent to an address that a client gave."""

import asyncio
import socket
import threading
import time
from contextlib import nullcontext, suppress

import pytest

from runner.front import outbound
from runner.front.addresses import Addresses
from runner.front.outbound import put_file
from shared.errors import UploadFailed


def test_a_log_of_tls_keys_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "engine.tar").write_bytes(b"x")
    monkeypatch.setenv("SSLKEYLOGFILE", "/none/keys")
    addresses = Addresses(["https://127.0.0.1"], None, "UPLOAD_ALLOW")
    with pytest.raises(UploadFailed, match="SSLKEYLOGFILE is /none/keys, which cannot be written"):
        asyncio.run(put_file(addresses, "https://127.0.0.1/x", "", tmp_path / "engine.tar", lambda _: None))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "it closed the connection before it had answered"),
        (b"HTTP/1.1 201 Created\r\nContent-", "it closed the connection before it had answered"),
        (
            b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n",
            "it closed the connection before it had answered",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "its answer cannot be read"),
    ],
)
def test_a_server_that_hangs_up_is_not_said_to_answer(tmp_path, answer, told):
    def hang_up():
        connection, _ = listener.accept()
        with connection:
            connection.makefile("rb").readline()
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1024):
                pass

    (tmp_path / "engine.tar").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=hang_up)
        server.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UploadFailed, match=told):
            asyncio.run(
                put_file(
                    Addresses([address], None, "UPLOAD_ALLOW"),
                    f"{address}/x",
                    "",
                    tmp_path / "engine.tar",
                    lambda _: None,
                )
            )
        server.join()


_CHUNK = b"10000\r\n" + bytes(1 << 16) + b"\r\n"


@pytest.mark.parametrize(
    ("begins", "goes_on", "pause", "told"),
    [
        (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", _CHUNK, 0, None),
        (b"HTTP/1.1 201 Created\r\n", b"X-A: 1\r\n", 0.05, "it did not answer in time"),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 9999\r\n\r\n", b"x", 0.05, "it did not answer in time"),
    ],
    ids=["a body without end", "headers that drip", "a body that drips"],
)
def test_an_answer_without_an_end_is_not_waited_for(tmp_path, monkeypatch, begins, goes_on, pause, told):
    """It was all kept in memory."""
    monkeypatch.setattr(outbound, "ANSWER_SECONDS", 1)
    sent = 0

    def answer():
        nonlocal sent
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.makefile("rb").readline()
            connection.sendall(begins)
            while sent < 256 << 20:
                connection.sendall(goes_on)
                sent += len(goes_on)
                time.sleep(pause)

    (tmp_path / "engine.tar").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer)
        server.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        ends = nullcontext() if told is None else pytest.raises(UploadFailed, match=told)
        began = time.monotonic()
        with ends:
            asyncio.run(
                put_file(
                    Addresses([address], None, "X"),
                    f"{address}/x",
                    "",
                    tmp_path / "engine.tar",
                    lambda _: None,
                )
            )
        assert time.monotonic() - began < 3
        server.join()
    assert sent < 32 << 20


@pytest.mark.parametrize("location", ["http://[::1", "http://\u202e/", "http://a/" + "y" * 70_000])
def test_a_place_that_cannot_be_one_is_not_told(tmp_path, location):
    """It failed the build that had been sent."""

    def answer():
        connection, _ = listener.accept()
        with connection:
            stream = connection.makefile("rb")
            while stream.readline().strip():
                pass
            stream.read(1)
            head = f"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nLocation: {location}\r\n\r\n"
            connection.sendall(head.encode())

    (tmp_path / "engine.tar").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer)
        server.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        place = asyncio.run(
            put_file(
                Addresses([address], None, "X"),
                f"{address}/x?a=b",
                "",
                tmp_path / "engine.tar",
                lambda _: None,
            )
        )
        server.join()
    assert place == f"{address}/x"
