"""Links: who does not know the secret gets nowhere, and what was not sent is not taken."""

from __future__ import annotations

import queue
import socket
import threading
import time
import uuid

import pytest

from runner.engines.hosts import link as links
from runner.engines.hosts.link import Link, LinkLost, LinkRefused, Listener, accept, connect

SECRET = b"a secret of at least 16 bytes"


@pytest.fixture
def listener():
    """Answers each message with the same, and keeps what ended a link."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def serve(link: Link) -> None:
        try:
            while True:
                link.send({"again": link.receive()})
        except LinkLost as lost:
            ended.put(str(lost))

    made = Listener(SECRET, serve)
    made.ended = ended  # type: ignore[attr-defined] # for these tests alone
    yield made
    made.close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "@cog-triton-test"])
def test_messages_go_both_ways(listener, address):
    if address.startswith("@"):
        address += uuid.uuid4().hex
    link = connect(listener.listen(address), SECRET)
    for number in range(3):
        link.send({"number": number})
        assert link.receive() == {"again": {"number": number}}
    link.close()
    assert listener.ended.get(timeout=5) == "it ended the connection"


def test_who_does_not_know_the_secret_is_refused(listener):
    with pytest.raises(LinkRefused, match="it ended the connection"):
        connect(listener.listen("127.0.0.1:0"), b"another secret")


def test_a_listener_that_does_not_know_the_secret_is_refused():
    """It could accept whatever the other side proves."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(bytes(32))
                links.exactly(connection, 64)
                connection.sendall(bytes(32))
                connection.recv(1)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(LinkRefused, match="it does not know the secret"):
            connect(f"127.0.0.1:{server.getsockname()[1]}", SECRET)
        thread.join(5)


def pair() -> tuple[Link, Link, socket.socket]:
    """Both ends of a link, and the first's connection as a third would have it."""
    ours, theirs = socket.socketpair()
    there: list[Link] = []
    thread = threading.Thread(target=lambda: there.append(accept(theirs, SECRET)))
    thread.start()
    nonce = links.exactly(ours, 32)
    both = nonce + bytes(32)
    ours.sendall(bytes(32) + links._mac(SECRET, b"connect", both))
    links.exactly(ours, 32)
    thread.join(5)
    return Link(ours, links._mac(SECRET, b"key", both), b"connect", b"accept"), there[0], ours


def sent(link: Link, connection: socket.socket, message: dict) -> bytes:
    """What `link` sends for a message, without sending it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link.connection = ours
        link.send(message)
        link.connection = connection
        return theirs.recv(1 << 16)


@pytest.mark.parametrize("how", ["repeated", "changed", "reflected", "too long"])
def test_what_was_not_sent_is_not_taken(how):
    first, second, connection = pair()
    with first.connection, second.connection:
        frame = sent(first, connection, {"run": ["orted"]})
        match how:
            case "repeated":
                connection.sendall(frame)
                assert second.receive() == {"run": ["orted"]}
            case "changed":
                frame = frame.replace(b"orted", b"other")
            case "reflected":
                frame = sent(second, second.connection, {"run": ["orted"]})
            case _:
                frame = b"\xff\xff\xff\x7f" + frame
        connection.sendall(frame)
        with pytest.raises(LinkLost):
            second.receive()


def test_connections_that_prove_nothing_are_bounded_and_closed(listener, monkeypatch):
    monkeypatch.setattr(links, "_HANDSHAKE_SECONDS", 0.5)
    address = listener.listen("127.0.0.1:0")
    port = int(address.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(links._UNPROVEN)]
    for connection in silent:
        links.exactly(connection, 32)
    with pytest.raises(LinkRefused):
        connect(address, SECRET)
    for connection in silent:
        assert connection.recv(1) == b""
        connection.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            connect(address, SECRET).close()
            return
        except LinkRefused:
            assert time.monotonic() < deadline
