"""Links: connections whose two ends have proved to each other that they know a secret, which neither sends.

    the side that accepts                     the side that connects
    nonce A (32 bytes)                 ->
                                       <-     nonce C, HMAC(secret, "connect" A C)
    HMAC(secret, "accept" A C)         ->

Then messages go both ways: `u32 length` (little-endian) of the rest, HMAC(key, side, u64 count, text), text.
The text is a JSON object; the key is HMAC(secret, "key" A C). All are HMAC-SHA256. Nothing is encrypted: an
eavesdropper can read the messages, but can neither send nor repeat one.

An address is `host:port`, or `@name` for a Unix socket with an abstract name. Standard library only.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shared.resolving import resolved, written

if TYPE_CHECKING:
    from collections.abc import Callable

_NONCE = 32
_MAC = 32
_LENGTH = struct.Struct("<I")
_COUNT = struct.Struct("<Q")
_MAX_BYTES = 1 << 20
_HANDSHAKE_SECONDS = 5.0
_UNPROVEN = 64  # connections that have not proved anything yet; more are closed
_PAUSE_SECONDS = 0.1  # while the process has as many open files as it may
LOST_SECONDS = 5
"""A host whose kernel does not even answer for this long is lost."""


class LinkRefused(Exception):
    """The other side does not know the secret, or does not speak this."""


class LinkLost(Exception):
    """The link has ended, or what arrived over it was not from the other side."""


def silent(lost: Exception) -> bool:
    """Whether a link has ended because nothing answered any more: the other process did not end it."""
    cause = lost.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, ConnectionError)


class Link:
    """One end. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket, key: bytes, own: bytes, other: bytes) -> None:
        self.connection = connection
        self._key, self._own, self._other = key, own, other
        self._sent = self._received = 0
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Raises `LinkLost`."""
        text = json.dumps(message).encode()
        with self._lock:
            proof = self._proof(self._own, self._sent, text)
            self._sent += 1
            try:
                self.connection.sendall(_LENGTH.pack(_MAC + len(text)) + proof + text)
            except OSError as problem:
                raise LinkLost(problem.strerror or str(problem)) from problem

    def receive(self) -> dict[str, Any]:
        """The next message. Raises `LinkLost`."""
        try:
            (length,) = _LENGTH.unpack(exactly(self.connection, _LENGTH.size))
            if not _MAC < length <= _MAX_BYTES:
                raise LinkLost("it sent something that is not a message")
            frame = exactly(self.connection, length)
        except OSError as problem:
            raise LinkLost(problem.strerror or str(problem)) from problem
        proof, text = frame[:_MAC], frame[_MAC:]
        if not hmac.compare_digest(proof, self._proof(self._other, self._received, text)):
            raise LinkLost("a message arrived that it did not send")
        self._received += 1
        message = json.loads(text)
        if not isinstance(message, dict):
            raise LinkLost("it sent something that is not a message")
        return message

    def close(self) -> None:
        """End it for both sides, even while another thread receives."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def _proof(self, side: bytes, count: int, text: bytes) -> bytes:
        return hmac.digest(self._key, side + _COUNT.pack(count) + text, "sha256")


def connect(address: str, secret: bytes, seconds: float = _HANDSHAKE_SECONDS) -> Link:
    """Raises OSError where nobody listens, or answers in time, and `LinkRefused`."""
    if address.startswith("@"):
        connection = socket.socket(socket.AF_UNIX)
        target: Any = "\0" + address[1:]
    else:
        family, target = _resolved(address)
        connection = socket.socket(family)
    try:
        connection.settimeout(seconds)
        connection.connect(target)
        ours = secrets.token_bytes(_NONCE)
        try:
            theirs = exactly(connection, _NONCE)
        except LinkLost as problem:  # it died: nobody has asked for the secret yet
            raise ConnectionResetError(errno.ECONNRESET, str(problem)) from problem
        try:
            both = theirs + ours
            connection.sendall(ours + _mac(secret, b"connect", both))
            proof = exactly(connection, _MAC)
        except TimeoutError:
            raise  # it may be loading an engine
        except (OSError, LinkLost) as problem:
            raise LinkRefused("the other side ended the connection") from problem
        if not hmac.compare_digest(proof, _mac(secret, b"accept", both)):
            raise LinkRefused("the other side does not know the secret")
        return _made(connection, secret, both, b"connect", b"accept")
    except BaseException:
        connection.close()
        raise


def accept(connection: socket.socket, secret: bytes) -> Link:
    """The link of a connection that was accepted. Raises `LinkRefused`."""
    try:
        until = time.monotonic() + _HANDSHAKE_SECONDS
        connection.settimeout(_HANDSHAKE_SECONDS)
        ours = secrets.token_bytes(_NONCE)
        connection.sendall(ours)
        answer = exactly(connection, _NONCE + _MAC, until)
        both = ours + answer[:_NONCE]
        if not hmac.compare_digest(answer[_NONCE:], _mac(secret, b"connect", both)):
            raise LinkRefused("it does not know the secret")
        connection.sendall(_mac(secret, b"accept", both))
        return _made(connection, secret, both, b"accept", b"connect")
    except (OSError, LinkLost) as problem:
        raise LinkRefused("it ended the connection") from problem


class Listener:
    """Takes links at one or more addresses. A thread for each calls `serve` with it, and closes it then."""

    def __init__(self, secret: bytes, serve: Callable[[Link], object]) -> None:
        self._secret, self._serve = secret, serve
        self._room = threading.BoundedSemaphore(_UNPROVEN)
        self._sockets: list[socket.socket] = []
        self._closed = threading.Event()

    def listen(self, address: str) -> str:
        """Listen there too, and return the address: a port of 0 means any. Raises OSError."""
        if address.startswith("@"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind("\0" + address[1:])  # not in a directory: nothing is left of it, however we end
            listener.listen()
        else:
            family, target = _resolved(address)
            listener = socket.create_server(target[:2], family=family)
            number = listener.getsockname()[1]
            address = written(target[0], number)
        self._sockets.append(listener)
        threading.Thread(target=self._accept, args=(listener,), name="links", daemon=True).start()
        return address

    def close(self) -> None:
        """Accept no more."""
        self._closed.set()
        for listener in self._sockets:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._closed.wait(_PAUSE_SECONDS):
                    return
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._take, args=(connection,), name="link", daemon=True).start()
            except RuntimeError:  # there is no room for another thread
                self._room.release()
                connection.close()

    def _take(self, connection: socket.socket) -> None:
        with connection:
            try:
                if not _may_be_ours(connection):
                    return
                link = accept(connection, self._secret)
            except LinkRefused:
                return
            finally:
                self._room.release()
            self._serve(link)


def _resolved(address: str) -> tuple[int, Any]:
    """Family and address of a socket for `host:port`. Raises OSError."""
    host, _, port = address.rpartition(":")
    return resolved(host.strip("[]"), int(port))


def exactly(connection: socket.socket, count: int, until: float | None = None) -> bytes:
    """Receive exactly that many bytes, `until` a time of the monotonic clock.

    Raises OSError, and `LinkLost` at the end of the connection.
    """
    received = bytearray()
    while len(received) < count:
        if until is not None:
            if (left := until - time.monotonic()) <= 0:
                raise TimeoutError
            connection.settimeout(left)
        piece = connection.recv(count - len(received))
        if not piece:
            raise LinkLost("it ended the connection")
        received += piece
    return bytes(received)


def _made(connection: socket.socket, secret: bytes, both: bytes, own: bytes, other: bytes) -> Link:
    connection.settimeout(None)
    if connection.family != socket.AF_UNIX:
        # The kernel of a live host answers, whatever its processes do.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, LOST_SECONDS - 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_SECONDS * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Link(connection, _mac(secret, b"key", both), own, other)


def _mac(secret: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret, role + nonces, "sha256")


def _may_be_ours(connection: socket.socket) -> bool:
    """Whether the other side of a Unix socket runs as the same user; over TCP only the secret shows it."""
    if connection.family != socket.AF_UNIX:
        return True
    peer = struct.Struct("3i")  # struct ucred: pid, uid, gid
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, peer.size)
    return bool(peer.unpack(told)[1] == os.getuid())
