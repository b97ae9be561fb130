"""HTTP servers on loopback, for as long as a test asks them."""

from __future__ import annotations

import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class LoopbackServer(ThreadingHTTPServer):
    """Answers in threads of its own, as long as its context lasts; or call `serve_forever`."""

    def __init__(
        self, handler: Callable[..., BaseHTTPRequestHandler], address: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        super().__init__(address, handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that went away, which are what many tests are about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


class _QuietFiles(QuietHandler, SimpleHTTPRequestHandler):
    pass


def folder_server(folder: Path) -> LoopbackServer:
    """A server of the files in a folder."""
    return LoopbackServer(partial(_QuietFiles, directory=str(folder)))
