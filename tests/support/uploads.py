"""A server on loopback that files are sent to with PUT, and fetched from again, as from a bucket."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Uploads(ThreadingHTTPServer):
    """An address that takes what is sent to it, but nothing below /no."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TakesFiles)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.received: dict[str, bytes] = {}
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _TakesFiles(BaseHTTPRequestHandler):
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

    def log_message(self, *_: object) -> None:
        pass
