"""Links: who does not know the secret gets nowhere, and what was not sent is not taken."""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest

from runner.engines.hosts import link as links
from runner.engines.hosts.link import Link, LinkLost, LinkRefused, Listener, accept, connect
from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for

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
    with pytest.raises(LinkRefused, match="the other side ended the connection"):
        connect(listener.listen("127.0.0.1:0"), b"another secret")


def test_who_dies_before_it_says_anything_has_refused_nobody():
    """A joining host gave up, as if the secret had been wrong."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def die() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(ConnectionResetError, match="it ended the connection"):
            connect(f"127.0.0.1:{server.getsockname()[1]}", SECRET)
        thread.join()


def test_who_does_not_answer_in_time_may_do_so_later():
    with socket.create_server(("127.0.0.1", 0)) as busy, pytest.raises(TimeoutError):
        connect(f"127.0.0.1:{busy.getsockname()[1]}", SECRET, seconds=0.1)


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
        with pytest.raises(LinkRefused, match="the other side does not know the secret"):
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


FULL = """
import os, resource, socket, sys
from runner.engines.hosts.link import Listener

def serve(link):
    link.send({"taken": True})
    link.receive()

listener = Listener(b"a secret of at least 16 bytes", serve)
print(listener.listen("127.0.0.1:0"), flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(socket.socket())
except OSError:
    print("full", flush=True)
sys.stdin.readline()
for one in held:
    one.close()
sys.stdin.readline()
os._exit(0)  # as engines do: the interpreter can crash while it ends beside threads
"""


def test_a_process_with_too_many_open_files_takes_links_again_later():
    command = [sys.executable, "-c", FULL]
    with subprocess.Popen(
        command, text=True, cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        taken = [connect(address, SECRET)]
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "full\n"
        with pytest.raises(TimeoutError):  # the second, if not the first: an accept that waits has its number
            taken.extend(connect(address, SECRET, seconds=0.5) for _ in range(2))
        print(file=process.stdin, flush=True)
        taken.append(connect(address, SECRET))
        for link in taken:
            assert link.receive() == {"taken": True}
            link.close()
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_listener_that_is_closed_ends(listener):
    before = threading.active_count()
    address = listener.listen("127.0.0.1:0")
    listener.close()
    with pytest.raises(OSError, match="refused"):
        connect(address, SECRET)
    wait_for(lambda: threading.active_count() <= before)


def test_who_proves_nothing_byte_by_byte_is_let_go(listener, monkeypatch):
    monkeypatch.setattr(links, "_HANDSHAKE_SECONDS", 1.0)
    port = int(listener.listen("127.0.0.1:0").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        links.exactly(connection, 32)

        def drip():
            for _ in range(63):  # one byte short of an answer
                connection.sendall(b"x")
                time.sleep(0.1)

        with pytest.raises(OSError, match=r"reset|Broken"):
            drip()


def test_connections_that_prove_nothing_are_bounded_and_closed(listener, monkeypatch):
    monkeypatch.setattr(links, "_HANDSHAKE_SECONDS", 2.0)
    address = listener.listen("127.0.0.1:0")
    port = int(address.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(links._UNPROVEN)]
    for connection in silent:
        links.exactly(connection, 32)
    with pytest.raises(ConnectionResetError):  # so it may try again
        connect(address, SECRET)
    for connection in silent:
        assert connection.recv(1) == b""
        connection.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            connect(address, SECRET).close()
            return
        except ConnectionResetError:
            assert time.monotonic() < deadline


def test_what_cannot_be_a_name_is_an_unknown_one():
    with pytest.raises(socket.gaierror, match="Name or service not known"):
        connect(f"{'a' * 64}:5700", SECRET)
