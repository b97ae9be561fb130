"""How fast a body must arrive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import limits
from .failures import TooSlow

if TYPE_CHECKING:
    from collections.abc import Iterator


def paced(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, which arrive while they are waited for. Raises `TooSlow` when they do not arrive fast
    enough; their consumer may take its time.
    """
    waited, received = 0.0, 0
    while True:
        began = time.monotonic()
        chunk = next(chunks, None)
        waited += time.monotonic() - began
        if chunk is None:
            return
        received += len(chunk)
        if waited >= limits.PACE_SECONDS:
            if received < limits.SLOWEST * waited:
                raise TooSlow
            waited, received = 0.0, 0
        yield chunk
