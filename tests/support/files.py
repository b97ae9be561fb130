"""A server of one file on loopback, with ranges, faults, and a rate per connection as object stores have it.

`python -m tests.support.files FILE [BYTES_PER_SECOND]` prints its URL, and serves until it is ended.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import BinaryIO

from tests.support.loopback import LoopbackServer, QuietHandler

# A key, and the certificate of an authority for 127.0.0.1, by itself.
CERTIFICATE = Path(__file__).with_name("loopback.pem")
_STEP = 1 << 20


class FileServer(LoopbackServer):
    request_queue_size = 64

    def __init__(self, path: Path | str, *, rate: float | None = None, has_ranges: bool = True) -> None:
        super().__init__(_Handler)
        self.path = path
        self.rate = rate
        self.has_ranges = has_ranges
        self.headers = {"ETag": '"1"'}
        self.ranges: list[tuple[int, int] | None] = []  # that were asked for: first and last byte
        self.cuts: list[int] = []  # answers with bodies are cut after that many bytes, one after another
        self.sent = 0  # bytes of bodies
        self.url += "/engine.tar"

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients that go away are what tests are about."""


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:
        with Path(self.server.path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last = 0, size - 1
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            self.server.ranges.append((int(asked[1]), int(asked[2])) if asked else None)
            unchanged = self.headers.get("If-Range") in (None, *self.server.headers.values())
            if asked and self.server.has_ranges and unchanged:
                first, last = int(asked[1]), min(int(asked[2]), last)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            else:
                self.send_response(200)
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            try:
                self._send(file, first, last + 1)
            except ConnectionError:
                self.close_connection = True  # the other side has read enough

    def _send(self, file: BinaryIO, start: int, stop: int) -> None:
        end = stop
        if stop - start > 1 and self.server.cuts:
            end = min(stop, start + self.server.cuts.pop())
        began, at = time.monotonic(), start
        while at < end:
            sent = self.connection.sendfile(file, at, min(_STEP, end - at))
            at += sent
            self.server.sent += sent
            if self.server.rate:
                time.sleep(max(0, began + (at - start) / self.server.rate - time.monotonic()))
        self.close_connection |= end < stop


if __name__ == "__main__":
    server = FileServer(sys.argv[1], rate=float(sys.argv[2]) if len(sys.argv) > 2 else None)
    print(server.url, flush=True)
    server.serve_forever()
