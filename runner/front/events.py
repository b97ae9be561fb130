"""JSON as event streams carry it: no line of an event ends within it, whoever splits the lines.

The standard ends lines at CR and LF alone, which JSON escapes anyway. Clients such as httpx also split at
U+0085, U+2028 and U+2029.
"""

from __future__ import annotations

from typing import Any

import orjson

_LINE_ENDS = (
    (b"\xc2\x85", rb"\u0085"),
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
)
COMMENT = b":\n\n"
"""What every client ignores, between two events."""


def event_json(content: Any) -> bytes:
    """The content as JSON on one line."""
    encoded = orjson.dumps(content)
    # Numbers are looked for much faster than bytes; most texts have neither.
    if encoded.isascii() or not (0xE2 in encoded or 0xC2 in encoded):
        return encoded
    return _escaped(encoded)


def _escaped(encoded: bytes) -> bytes:
    for line_end, escape in _LINE_ENDS:
        if line_end in encoded:
            encoded = encoded.replace(line_end, escape)
    return encoded
