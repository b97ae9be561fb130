"""One gRPC call at a time over one HTTP/2 connection, driven by the thread that reads it.

General gRPC clients hand every message from a polling thread to the reader. Here a prediction's own thread
blocks in `recv` on its own socket, and nobody else wakes up. HTTP/2 is RFC 9113, its header compression
RFC 7541 (the library hpack), gRPC on top of it "gRPC over HTTP2" (PROTOCOL-HTTP2.md in grpc/grpc).
"""

from __future__ import annotations

import socket
import struct
from enum import IntEnum
from urllib.parse import unquote

import hpack


class Frame(IntEnum):
    """HTTP/2 frame types that matter to a client (RFC 9113, section 6)."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class GrpcStatus(IntEnum):
    """The status codes of gRPC that are told apart here."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    UNAVAILABLE = 14


class GrpcError(Exception):
    """A call that did not end with OK."""

    def __init__(self, status: int, details: str) -> None:
        super().__init__(details)
        self.status = status
        self.details = details


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">HBBBI")  # length in 16 + 8 bits, type, flags, stream
_WORD = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_MESSAGE_HEAD = struct.Struct(">BI")  # compressed?, length

_END_STREAM = 0x1
_ACK = 0x1
_END_HEADERS = 0x4
_PADDED = 0x8
_PRIORITY = 0x20

_ENABLE_PUSH = 2
_INITIAL_WINDOW_SIZE = 4
_DEFAULT_WINDOW = 65_535
_LARGEST_WINDOW = (1 << 31) - 1
_FRAME_BYTES = 16_384  # every peer takes frames of this size
_READ_BYTES = 1 << 16


class GrpcConnection:
    """A connection to a gRPC server on this machine, for one call after the other.

    All methods but `abort` belong to one thread at a time. After an error the connection is of no more use.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        """Connect. `timeout`: seconds that the server may be silent. Raises GrpcError (UNAVAILABLE)."""
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise GrpcError(
                GrpcStatus.UNAVAILABLE, f"connecting failed: {error.strerror or error}"
            ) from error
        # Where nobody listens, a connection may be given the port that it goes to, and so reach itself: then
        # the server that is being started again could not have that port.
        if self._socket.getsockname() == self._socket.getpeername():
            self._socket.close()
            raise GrpcError(GrpcStatus.UNAVAILABLE, "connecting failed: nobody listens")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A receive time-out of the socket's own costs no extra system call, as Python's does.
        self._socket.settimeout(None)
        whole, fraction = divmod(timeout, 1)
        limit = struct.pack("ll", int(whole), int(1e6 * fraction))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._authority = f"{host}:{port}"
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._received = bytearray()
        self._stream = -1
        self._first_window = _DEFAULT_WINDOW  # what the server lets us send on a new stream
        self._stream_window = 0
        self._connection_window = _DEFAULT_WINDOW
        self._unacknowledged = 0
        self._message = bytearray()
        self._ended = True
        # What the server sends is bounded by how fast the bridge finds it read, not by windows.
        settings = _SETTING.pack(_ENABLE_PUSH, 0) + _SETTING.pack(_INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
        self._send(
            _PREFACE,
            _frame(Frame.SETTINGS, 0, 0, settings),
            _frame(Frame.WINDOW_UPDATE, 0, 0, _WORD.pack(_LARGEST_WINDOW - _DEFAULT_WINDOW)),
        )

    def is_usable(self) -> bool:
        """Whether another call can be started: the last one ended well, and the server is still there."""
        if not self._ended:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def start(self, path: str, message: bytes) -> None:
        """Begin a call with its one request message. Raises GrpcError (UNAVAILABLE)."""
        self._stream += 2
        self._stream_window = self._first_window
        self._ended = False
        headers = self._encoder.encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", path),
                (":authority", self._authority),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
            ]
        )
        rest = memoryview(_MESSAGE_HEAD.pack(0, len(message)) + message)
        begin = _frame(Frame.HEADERS, _END_HEADERS, self._stream, headers)
        while rest:
            room = min(len(rest), _FRAME_BYTES, self._stream_window, self._connection_window)
            if room <= 0:  # until the server has read what we sent
                self._send(begin)
                begin = b""
                self._handle(*self._next_frame())
                continue
            self._stream_window -= room
            self._connection_window -= room
            flags = _END_STREAM if room == len(rest) else 0
            self._send(begin, _frame(Frame.DATA, flags, self._stream, rest[:room]))
            begin, rest = b"", rest[room:]

    def next_message(self) -> bytes | None:
        """The next response message, None after the last. Raises GrpcError, and TimeoutError."""
        while True:
            if len(self._message) >= _MESSAGE_HEAD.size:
                _, length = _MESSAGE_HEAD.unpack_from(self._message)
                end = _MESSAGE_HEAD.size + length
                if len(self._message) >= end:
                    message = bytes(memoryview(self._message)[_MESSAGE_HEAD.size : end])
                    del self._message[:end]
                    return message
            if self._ended:
                return None
            self._handle(*self._next_frame())

    def abort(self) -> None:
        """End the call and the connection, from any thread: the server cancels, the reader gets an error."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was faster

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == Frame.DATA:
            self._message += _unpadded(flags, payload)
            self._unacknowledged += len(payload)
            if flags & _END_STREAM:
                raise GrpcError(GrpcStatus.UNKNOWN, "the answer has no status")
        elif kind == Frame.HEADERS:
            self._take_headers(flags, payload)
        elif kind == Frame.RST_STREAM:
            raise GrpcError(GrpcStatus.CANCELLED, "the server reset the call")
        elif kind == Frame.GOAWAY:
            raise GrpcError(GrpcStatus.UNAVAILABLE, "the server is going away")
        elif kind == Frame.PING and not flags & _ACK:
            self._send(_frame(Frame.PING, _ACK, 0, payload))
        elif kind == Frame.SETTINGS and not flags & _ACK:
            self._take_settings(payload)
        elif kind == Frame.WINDOW_UPDATE:
            (increment,) = _WORD.unpack(payload)
            if stream == 0:
                self._connection_window += increment
            elif stream == self._stream:
                self._stream_window += increment

    def _take_settings(self, payload: bytes) -> None:
        for key, value in _SETTING.iter_unpack(payload):
            if key == _INITIAL_WINDOW_SIZE:
                self._stream_window += value - self._first_window
                self._first_window = value
        self._send(_frame(Frame.SETTINGS, _ACK, 0, b""))

    def _take_headers(self, flags: int, payload: bytes) -> None:
        block = _unpadded(flags, payload)
        if flags & _PRIORITY:
            block = block[5:]
        ends_stream = flags & _END_STREAM
        while not flags & _END_HEADERS:
            _, flags, _, more = self._next_frame()
            block += more
        headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        if not ends_stream:
            return  # what comes before the first message says nothing that matters
        self._ended = True
        if self._unacknowledged:
            self._send(_frame(Frame.WINDOW_UPDATE, 0, 0, _WORD.pack(self._unacknowledged)))
            self._unacknowledged = 0
        status = int(headers.get("grpc-status", GrpcStatus.UNKNOWN))
        if status != GrpcStatus.OK:
            raise GrpcError(status, unquote(headers.get("grpc-message", "")))

    def _next_frame(self) -> tuple[int, int, int, bytes]:
        self._receive(_HEAD.size)
        high, low, kind, flags, stream = _HEAD.unpack_from(self._received)
        end = _HEAD.size + (high << 8 | low)
        self._receive(end)
        payload = bytes(memoryview(self._received)[_HEAD.size : end])
        del self._received[:end]
        return kind, flags, stream & _LARGEST_WINDOW, payload

    def _receive(self, count: int) -> None:
        """Have at least so many bytes received and not yet taken."""
        while len(self._received) < count:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                raise TimeoutError from None
            except OSError as error:
                raise GrpcError(GrpcStatus.UNAVAILABLE, str(error.strerror)) from error
            if not data:
                raise GrpcError(GrpcStatus.UNAVAILABLE, "the connection was closed")
            self._received += data

    def _send(self, *parts: bytes) -> None:
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise GrpcError(GrpcStatus.UNAVAILABLE, str(error.strerror)) from error


def _frame(kind: Frame, flags: int, stream: int, payload: bytes | memoryview) -> bytes:
    return _HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def _unpadded(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
