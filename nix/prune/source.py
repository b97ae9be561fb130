"""Reads of a file, bounded by its size."""

from __future__ import annotations

import os
import stat

from .refused import Refused

CHUNK = 1 << 20


class Source:
    """A file that is read by position; none of it is kept in memory."""

    def __init__(self, file: int) -> None:
        """Raises Refused when it is something else."""
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Refused("not a regular file")
        self.file = file
        self.size = status.st_size

    def read(self, offset: int, size: int) -> bytes:
        """Raises Refused when the file is shorter."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Refused("a header points past the end of the file")
        parts = []
        while size:
            part = os.pread(self.file, size, offset)
            if not part:
                raise Refused("the file became shorter while it was being read")
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def find(self, wanted: bytes, start: int, end: int) -> int:
        """Where `wanted` next occurs between two positions; `end` if it does not."""
        size = 4096
        while start < end:
            part = self.read(start, min(size, end - start))
            found = part.find(wanted)
            if found >= 0:
                return start + found
            if start + len(part) == end:
                break
            start += len(part) - len(wanted) + 1
            size = min(2 * size, CHUNK)
        return end

    def zeros_end(self, start: int, end: int) -> int:
        """Where the run of zero bytes that begins at `start` ends; at most `end`."""
        size = 4096
        while start < end:
            part = self.read(start, min(size, end - start))
            size = min(2 * size, CHUNK)
            rest = len(part.lstrip(b"\0"))
            if rest:
                return start + len(part) - rest
            start += len(part)
        return start
