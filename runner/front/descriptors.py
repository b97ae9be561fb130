"""How the descriptors of the front's process are shared out, so that clients cannot take all of them."""

from __future__ import annotations

import resource
from dataclasses import dataclass

_MOST_OTHERS = 256  # libraries, logs, Triton, webhooks
_MOST_REFUSED = 128
_MOST_HANDSHAKES = 128


@dataclass(frozen=True, slots=True)
class Shares:
    """How many descriptors there are for what."""

    connections: int
    refused: int = _MOST_REFUSED
    """Connections beyond those, which are told that there are too many; others are closed without a word."""
    handshakes: int = _MOST_HANDSHAKES
    """Connections of TLS that have not yet been greeted."""


def share_descriptors(connections: int) -> Shares:
    """Allow this process as many open files as it may have, and share them out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return Shares(connections)
    others = min(_MOST_OTHERS, hard // 2)
    refused, handshakes = min(_MOST_REFUSED, hard // 16), min(_MOST_HANDSHAKES, hard // 16)
    left = hard - others - refused - handshakes
    return Shares(max(1, min(connections, left)), max(1, refused), max(1, handshakes))
