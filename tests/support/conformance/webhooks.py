"""An address for webhooks, which writes down what comes."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LONGEST_SECONDS = 20


class Hooks:
    """Paths under `url`, one per prediction; one that ends in `/broken` answers 500 to the first two."""

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[dict[str, str], Any]]] = defaultdict(list)
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                calls = hooks._calls[self.path]
                calls.append((headers, json.loads(body)))
                self.send_response(500 if self.path.endswith("/broken") and len(calls) < 3 else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def calls(self, path: str, least: int, *, to_the_end: bool) -> list[tuple[dict[str, str], Any]]:
        """What came to a path: once there are so many, with `to_the_end` also the end, and for a moment no more."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        while time.monotonic() < deadline:
            calls = list(self._calls[path])
            ended = any(body["status"] != "processing" for _, body in calls)
            if len(calls) >= least and (ended or not to_the_end):
                break
            time.sleep(0.02)
        time.sleep(0.2)
        return list(self._calls[path])
