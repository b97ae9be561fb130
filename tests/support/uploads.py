"""A server on loopback that files are sent to with PUT, and fetched from again, as from a bucket."""

from __future__ import annotations

from tests.support.loopback import LoopbackServer, QuietHandler


class Uploads(LoopbackServer):
    """An address that takes what is sent to it, but nothing below /no."""

    def __init__(self) -> None:
        super().__init__(_TakesFiles)
        self.received: dict[str, bytes] = {}


class _TakesFiles(QuietHandler):
    server: Uploads

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if self.path.startswith("/no"):
            self.send_response(404)
        else:
            self.server.received[self.path] = content
            self.send_response(201)
        self.end_headers()

    def do_GET(self) -> None:
        content = self.server.received.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("content-length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")
