"""How many lines one client may cause in the log: the rest are counted, and the count is logged."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_PER_SECOND = 20
BURST = 100
"""Lines that a client may cause at once."""
_REPORT_SECONDS = 10
_MAX_CLIENTS = 4096  # that are remembered: those with the latest lines
_MAX_NAMED = 5  # in a report
_NETWORK_BITS = 64  # of an IPv6 address: who has one has all addresses of such a network
# Their complaints are caused by clients, of which those that are no request yet are not known.
_ABOUT_CLIENTS = {"asyncio": "unknown (asyncio)", "uvicorn.error": "unknown (uvicorn)"}

_client: ContextVar[str | None] = ContextVar("client", default=None)


def bind_client(client: str) -> None:
    """Count the lines of the current context as caused by this client: the holder of a key, or an address."""
    _client.set(client)


def client_at(address: str) -> str:
    """The client at an IP address: with IPv6, one stands for its whole network."""
    if ":" not in address:
        return address
    try:
        ip = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    low = 128 - _NETWORK_BITS
    return f"{IPv6Address(int(ip) >> low << low)}/{_NETWORK_BITS}"


@dataclass(slots=True)
class _Share:
    """What one client may still log."""

    lines: float
    at: float
    left_out: int = 0


class ClientRate(logging.Filter):
    """Leaves out lines of clients that cause too many. Lines that no client causes always pass."""

    def __init__(self, emit: Callable[[logging.LogRecord], object]) -> None:
        """`emit` writes how many lines were left out."""
        super().__init__()
        self._emit = emit
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        self._left_out_of_forgotten = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is to be written."""
        client = _client.get()
        if client is None and record.levelno >= logging.WARNING:
            client = _ABOUT_CLIENTS.get(record.name)
        if client is None:
            return True
        with self._lock:
            passes = self._passes(client, time.monotonic())
            if not passes and self._timer is None:
                self._timer = threading.Timer(_REPORT_SECONDS, self.report)
                self._timer.daemon = True
                self._timer.start()
        return passes

    def report(self) -> None:
        """Write how many lines were left out since the last report, and which clients caused most of them."""
        with self._lock:
            self._timer = None
            counts = {client: share.left_out for client, share in self._shares.items() if share.left_out}
            for client in counts:
                self._shares[client].left_out = 0
            total = sum(counts.values()) + self._left_out_of_forgotten
            self._left_out_of_forgotten = 0
        worst = sorted(counts, key=lambda client: -counts[client])[:_MAX_NAMED]
        if total:
            clients = ", ".join(f"{client}: {counts[client]}" for client in worst)
            most = f"clients that caused more than {LINES_PER_SECOND} a second"
            text = f"log lines were left out: {total}, of {most} ({clients})"
            self._emit(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))

    def _passes(self, client: str, now: float) -> bool:
        share = self._shares.pop(client, None)
        if share is None:
            share = _Share(BURST, now)
            while len(self._shares) >= _MAX_CLIENTS:
                self._left_out_of_forgotten += self._shares.popitem(last=False)[1].left_out
        self._shares[client] = share
        share.lines = min(BURST, share.lines + (now - share.at) * LINES_PER_SECOND)
        share.at = now
        if share.lines < 1:
            share.left_out += 1
            return False
        share.lines -= 1
        return True
