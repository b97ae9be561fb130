"""How long a line of a log may be, and what becomes of a longer one. Standard library only."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

LINE_BYTES = 4096
"""The longest line, with its newline. A pipe takes so much (PIPE_BUF) in one piece: lines do not mix."""
_MARK_BYTES = 64  # room for what is said of the rest
_LINE = re.compile(rb"([^\r\n]*)([\r\n]?)")


class LineCutter:
    """Cuts what arrives into lines. What is too long ends with a mark that says how much was left out."""

    def __init__(self) -> None:
        self._line = bytearray()  # what waits for the end of its line
        self._length = 0  # of the line so far, with what `rest` has given away and what is left out

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in `data`, with their ends. A carriage return is one: progress bars have it."""
        lines = []
        for text, end in _LINE.findall(data):
            kept = max(0, LINE_BYTES - _MARK_BYTES - self._length)
            self._line += text[:kept]
            self._length += len(text)
            if end:
                lines.append(bytes(self._line) + self._mark() + end)
                self._line.clear()
                self._length = 0
        return lines

    def rest(self) -> bytes:
        """What there is of a line that has not ended; it goes on with what is fed next."""
        rest = bytes(self._line)
        self._line.clear()
        return rest

    def end(self) -> list[bytes]:
        """The last line, if it has not ended."""
        return self.feed(b"\n") if self._length else []

    def _mark(self) -> bytes:
        left_out = self._length - (LINE_BYTES - _MARK_BYTES)
        return b" [%d bytes left out]" % left_out if left_out > 0 else b""


def shortened(text: str, length: int, missing: int = 0, *, keep_end: bool = False) -> str:
    """`text` with about `length` characters at most: its beginning or its end, and how much was left out.

    `missing`: how many characters it lacks already.
    """
    left_out = max(0, len(text) - length) + missing
    if not left_out:
        return text
    mark = f"[{left_out} characters left out]"
    return f"{mark} {text[-length:]}" if keep_end else f"{text[:length]} {mark}"


def lost_notice(count: int) -> bytes:
    """The line that stands where lines are missing."""
    event = {
        "event": f"log lines were lost here, since nothing took them: {count}",
        "logger": __name__,
        "level": "warning",
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    }
    return json.dumps(event).encode() + b"\n"
