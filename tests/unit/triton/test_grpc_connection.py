"""The gRPC connection against a server of grpcio."""

from __future__ import annotations

import socket
import threading
import time

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.triton.grpc_connection import GrpcConnection, GrpcError, GrpcStatus
from tests.unit.triton.conftest import METHOD


@pytest.fixture
def connect():
    connections = []

    def to(port: int, timeout: float = 20) -> GrpcConnection:
        connections.append(GrpcConnection("127.0.0.1", port, timeout))
        return connections[-1]

    yield to
    for connection in connections:
        connection.close()


def messages(connection: GrpcConnection, request: bytes = b"") -> list[bytes]:
    connection.start(METHOD, request)
    received = []
    while (message := connection.next_message()) is not None:
        received.append(message)
    return received


def test_messages_arrive_whole_and_in_order(serve, connect):
    sent = [b"", b"x", b"y" * 100_000, b"z"]
    assert messages(connect(serve(lambda _request, _context: iter(sent)))) == sent


def test_a_request_larger_than_the_servers_window_arrives_whole(serve, connect):
    port = serve(lambda request, _context: iter([request]))
    request = bytes(range(256)) * 40_000
    assert messages(connect(port), request) == [request]


def test_a_connection_serves_one_call_after_the_other(serve, connect):
    connection = connect(serve(lambda request, _context: iter([request] * 3)))
    for number in range(50):
        assert connection.is_usable()
        request = b"%d" % number * 10_000
        assert messages(connection, request) == [request] * 3


def test_an_answer_of_many_megabytes_does_not_run_into_a_window(serve, connect):
    block = b"x" * (1 << 20)
    connection = connect(serve(lambda _request, _context: (block for _ in range(80))))
    assert sum(map(len, messages(connection))) == 80 << 20
    assert messages(connection)[-1] == block


def test_an_error_comes_after_the_messages_before_it(serve, connect):
    def answer(_request, context):
        yield b"first"
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "50% of ümlauts\nlost")

    connection = connect(serve(answer))
    connection.start(METHOD, b"")
    assert connection.next_message() == b"first"
    with pytest.raises(GrpcError) as raised:
        connection.next_message()
    assert raised.value.status == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert raised.value.details == "50% of ümlauts\nlost"


def test_an_error_without_a_message(serve, connect):
    def answer(_request, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")

    with pytest.raises(GrpcError, match="not now") as raised:
        messages(connect(serve(answer)))
    assert raised.value.status == GrpcStatus.UNAVAILABLE


def test_abort_from_another_thread_ends_the_reader_and_tells_the_server(serve, connect):
    cancelled = threading.Event()

    def answer(_request, context):
        context.add_callback(cancelled.set)
        yield b"first"
        cancelled.wait(20)

    connection = connect(serve(answer))
    connection.start(METHOD, b"")
    assert connection.next_message() == b"first"
    threading.Timer(0.1, connection.abort).start()
    with pytest.raises(GrpcError):
        connection.next_message()
    assert cancelled.wait(20)
    assert not connection.is_usable()


def test_a_silent_server_is_a_time_out(serve, connect):
    released = threading.Event()

    def answer(_request, _context):
        yield b"first"
        released.wait(20)

    connection = connect(serve(answer), timeout=0.3)
    connection.start(METHOD, b"")
    assert connection.next_message() == b"first"
    with pytest.raises(TimeoutError):
        connection.next_message()
    released.set()


def test_nobody_listens(connect):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(GrpcError, match="connecting failed") as raised:
            connect(unused.getsockname()[1])
    assert raised.value.status == GrpcStatus.UNAVAILABLE


@given(st.lists(st.integers(1, 40_000), max_size=8), st.lists(st.integers(1, 9_000), min_size=1))
def test_however_the_bytes_are_cut_the_messages_are_the_same(sizes, cuts):
    """A peer of our own that sends one valid answer in arbitrary pieces."""
    import hpack

    from runner.triton.grpc_connection import Frame, _frame

    encoder = hpack.Encoder()
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    body = b"".join(b"\0" + len(one).to_bytes(4, "big") + one for one in sent)
    answer = _frame(Frame.SETTINGS, 0, 0, b"") + _frame(
        Frame.HEADERS, 4, 1, encoder.encode([(":status", "200")])
    )
    answer += b"".join(
        _frame(Frame.DATA, 0, 1, body[start : start + 16_384]) for start in range(0, len(body), 16_384)
    )
    answer += _frame(Frame.PING, 0, 0, b"12345678")
    answer += _frame(Frame.HEADERS, 5, 1, encoder.encode([("grpc-status", "0")]))

    def peer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            rest, number = answer, 0
            while rest:
                size = cuts[number % len(cuts)]
                connection.sendall(rest[:size])
                rest, number = rest[size:], number + 1
            while connection.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=peer, args=(listener,))
        thread.start()
        connection = GrpcConnection("127.0.0.1", listener.getsockname()[1], 20)
        try:
            assert messages(connection) == sent
        finally:
            connection.close()
            thread.join()


def test_a_server_that_goes_away_between_calls_is_noticed(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = connect(listener.getsockname()[1])
        peer, _ = listener.accept()
        assert connection.is_usable()
        peer.close()
        deadline = time.monotonic() + 10
        while connection.is_usable():
            assert time.monotonic() < deadline


def test_a_connection_to_itself_is_none(monkeypatch):
    with socket.socket() as itself:
        itself.bind(("127.0.0.1", 0))
        itself.connect(itself.getsockname())
        monkeypatch.setattr(socket, "create_connection", lambda *_: itself)
        with pytest.raises(GrpcError, match="nobody listens"):
            GrpcConnection("127.0.0.1", itself.getsockname()[1], 1)
        assert itself.fileno() == -1
