"""Where Triton listens, in the form of the settings: `host:port`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from shared.resolving import written

LOOPBACK = "127.0.0.1"
_PORT = re.compile(r"[0-9]{1,5}")
# What listens on all addresses also listens on this one.
_HERE = {"0.0.0.0": LOOPBACK, "::": "::1", "": LOOPBACK}


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `host:port`, with an IPv6 host in brackets. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not (colon and host and _PORT.fullmatch(port) and 0 < int(port) < 1 << 16):
            raise ValueError("must be host:port, the port from 1 to 65535 and an IPv6 host in brackets")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def here(self) -> str:
        """`host:port` at which this machine reaches it."""
        return written(reached_at(self.host), self.port)


def reached_at(host: str) -> str:
    """The host at which this machine reaches what listens on `host`."""
    return _HERE.get(host, host)
